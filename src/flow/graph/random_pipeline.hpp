#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/flow/graph.hpp>

/// Pipelines drawn from a seed, with their expected results: for tests that split them over groups.
namespace amalgam::random_pipeline {

struct item {
    std::uint64_t value = 0;
    std::string text;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, text);
    }
    friend auto operator<=>(const item&, const item&) = default;
};

enum class kind : std::uint8_t {
    change,   ///< One output per input.
    drop,     ///< Drops some.
    repeat,   ///< Doubles some.
    grow,     ///< Longer text; sometimes longer than a batch.
    sum_up,   ///< Passes items through, and emits one more at the end.
    swallow,  ///< Emits only one at the end.
};

struct plan {
    std::uint64_t seed = 0;
    std::uint64_t items = 0;
    std::vector<kind> stages;
    /// Group of each node (source, stages, sink), ascending from 0.
    std::vector<std::size_t> group_of;
    std::vector<std::size_t> replicas;  ///< Per group.

    bool replicated() const noexcept;
};

/// A plan with 1 to 5 groups. `replicas`: some groups have several processes (and then no stage
/// depends on which of them receives an item).
plan draw(std::uint64_t seed, bool replicas);

/// Builds it. The sink appends to `results` if it runs here.
void build(graph& into, const plan& from, std::vector<item>& results);

/// What all sinks together must receive, computed by a plain loop: in this order, unless
/// replicated.
std::vector<item> expected(const plan& from);

/// The config's text, with endpoints from `endpoint(group, replica)`.
template <typename Endpoint>
std::string config_text(const plan& from, Endpoint endpoint) {
    std::string groups;
    for (std::size_t g = 0; g < from.replicas.size(); ++g) {
        std::string list;
        for (std::size_t r = 0; r < from.replicas[g]; ++r)
            list += (r == 0 ? "\"" : ", \"") + endpoint(g, r) + "\"";
        groups +=
            (g == 0 ? "\"G" : ", \"G") + std::to_string(g) + "\": {\"endpoint\": [" + list + "]}";
    }
    return "{\"groups\": {" + groups + "}}";
}

}  // namespace amalgam::random_pipeline
