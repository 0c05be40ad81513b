#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/flow/graph.hpp>

/// Graphs of nested blocks drawn from a seed, and what they must give: for tests that run them
/// whole, or spread over groups in any way.
namespace amalgam::random_graph {

struct item {
    std::uint64_t value = 0;
    std::uint64_t passes = 0;  ///< Through the entries of loops.
    std::uint64_t order = 0;   ///< Rises with every item that one node sends.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, passes, order);
    }
};

enum class kind : std::uint8_t {
    change,  ///< One out for one in.
    drop,    ///< None for some.
    repeat,  ///< Two for some.
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
    std::vector<plan_block> parts;  ///< A farm has one, copied; all_to_all two, left and right.
    std::size_t width = 1;          ///< Copies of the first part.
    std::size_t right_width = 1;
    policy spread = policy::turns;  ///< Over what is copied; in all_to_all over the right ones.
};

struct plan {
    std::uint64_t seed = 0;
    std::uint64_t items = 0;  ///< Of each source.
    std::size_t sources = 1;
    plan_block body;
    std::size_t sinks = 1;
    policy last = policy::turns;
    std::size_t groups = 1;
};

/// A plan with up to `most_groups` groups.
plan draw(std::uint64_t seed, std::size_t most_groups);

/// What the sinks got, and the first item that overtook another on its way between two nodes.
struct outcome {
    std::vector<std::vector<std::uint64_t>> got;  ///< By sink.
    std::string overtaken;
    /// By each sink of an endless run, with how many it has got.
    std::function<void(std::uint64_t)> on_item{};
};

/// Builds it, in groups G0, G1 … where there are any; the same in every process. Sinks that run
/// here write to `into`; in one process at a time, if there are several. `endless`: its sources
/// go on for ever, and the sinks keep nothing.
void build(graph& g, const plan& from, outcome& into, bool endless = false);

/// All that the sinks together must have got, by a plain loop; sorted.
std::vector<std::uint64_t> expected(const plan& from);

/// The same of an outcome.
std::vector<std::uint64_t> all_of(const outcome& what);

/// The groups that the plan's nodes are in: G0, G1 … Those drawn may be more.
std::vector<std::string> groups_of(const plan& from);

/// The config's text, with the endpoint that `endpoint(group)` gives.
template <typename Endpoint>
std::string config_text(const plan& from, Endpoint endpoint) {
    std::string groups;
    for (const std::string& name : groups_of(from))
        groups += (groups.empty() ? "\"" : ", \"") + name + "\": {\"endpoint\": \"" +
                  endpoint(name) + "\"}";
    return "{\"groups\": {" + groups + "}}";
}

}  // namespace amalgam::random_graph
