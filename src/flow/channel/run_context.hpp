#pragma once

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include <amalgam/fabric/identity.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "flow/nodes/local_nodes.hpp"

namespace amalgam::detail {

/// One process of a run: the group's number in the graph, and the replica.
struct process_id {
    std::size_t group = 0;
    std::size_t replica = 0;
    friend auto operator<=>(const process_id&, const process_id&) = default;
};

/// Addresses of all processes: by the group's number in the graph, then by replica.
using address_book = std::vector<std::vector<std::string>>;

/// Keys of all processes, in the same order; empty if the run makes none.
using key_book = std::vector<std::vector<key_fingerprint>>;

/// What everything needs that connects a process to the others of its run.
///
/// Owner:   borrows everything but the options.
struct run_context {
    graph_core& graph;
    const flow_config& config;
    process_id here;
    engine& over;
    local_nodes& nodes;
    run_options options;
    key_book keys;
    bool takes_marks = false;  ///< There are checkpoints.
    event closed;              ///< Set when this process is done with the others.

    std::size_t replicas_of(std::size_t group) const {
        return config.find(graph.group_names()[group])->replicas();
    }
    std::string label(process_id who) const {
        return process_label(*config.find(graph.group_names()[who.group]), who.replica);
    }
};

}  // namespace amalgam::detail
