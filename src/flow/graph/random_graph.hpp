#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/flow/graph.hpp>

/// Graphs of nested blocks drawn from a seed, with their expected results: for tests that run them
/// whole, or spread over groups in any way.
namespace amalgam::random_graph {

struct item {
    std::uint64_t value = 0;
    std::uint64_t passes = 0;  ///< Passes through loop entries.
    std::uint64_t order = 0;   ///< Increases with every item a node sends.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, passes, order);
    }
};

enum class kind : std::uint8_t {
    change,  ///< One output per input.
    drop,    ///< Drops some.
    repeat,  ///< Doubles some.
    pipeline,
    farm,
    all_to_all,
    feedback,
    combine,
    ordered_farm,  ///< Behind a node of its own.
};

enum class policy : std::uint8_t { turns, demand, key, everybody, chosen };

struct plan_block {
    kind what = kind::change;
    std::uint64_t salt = 0;
    std::vector<plan_block> parts;  ///< One for a farm, copied; left and right for all_to_all.
    std::size_t width = 1;          ///< Copies of the first part.
    std::size_t right_width = 1;
    policy spread = policy::turns;  ///< Over the copies; in all_to_all over the right workers.
};

struct plan {
    std::uint64_t seed = 0;
    std::uint64_t items = 0;  ///< Per source.
    std::size_t sources = 1;
    plan_block body;
    std::size_t sinks = 1;
    policy last = policy::turns;
    std::size_t groups = 1;
};

/// A plan with up to `most_groups` groups.
plan draw(std::uint64_t seed, std::size_t most_groups);

/// What the sinks received, and the first item that overtook another between two nodes.
struct outcome {
    std::vector<std::vector<std::uint64_t>> got;  ///< By sink.
    std::string overtaken;
    /// Called by each sink of an endless run, with its item count.
    std::function<void(std::uint64_t)> on_item{};
};

/// Builds the graph, with groups G0, G1 … if there are any; the same in every process. Sinks that
/// run here write to `into`; of several processes, one at a time. `endless`: the sources never
/// stop, and the sinks store nothing.
void build(graph& g, const plan& from, outcome& into, bool endless = false);

/// What all sinks together must receive, computed by a plain loop; sorted.
std::vector<std::uint64_t> expected(const plan& from);

/// The same for an outcome.
std::vector<std::uint64_t> all_of(const outcome& what);

/// Groups the plan's nodes are in: G0, G1 … Possibly fewer than drawn.
std::vector<std::string> groups_of(const plan& from);

/// The config's text, with endpoints from `endpoint(group)`.
template <typename Endpoint>
std::string config_text(const plan& from, Endpoint endpoint) {
    std::string groups;
    for (const std::string& name : groups_of(from))
        groups += (groups.empty() ? "\"" : ", \"") + name + "\": {\"endpoint\": \"" +
                  endpoint(name) + "\"}";
    return "{\"groups\": {" + groups + "}}";
}

}  // namespace amalgam::random_graph
