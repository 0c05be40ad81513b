#pragma once

#include <functional>
#include <optional>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/channel_set.hpp"
#include "flow/channel/run_context.hpp"
#include "flow/nodes/local_nodes.hpp"
#include "flow/nodes/streams.hpp"
#include "flow/processes/channel_calls.hpp"
#include "flow/processes/loop_termination.hpp"
#include "flow/processes/neighbors.hpp"

namespace amalgam::detail {

/// One process's run of one group, from joining the others to the end of every node.
///
/// Owner:   borrows everything passed in. The engine must be stopped first.
/// Threads: start() and destruction by one; it runs as ULTs of the engine and of `streams`.
class group_run {
public:
    /// Starts serving the other processes' calls, so the engine's address may be published.
    /// With `keys`, nobody who has the key of one process is taken for another.
    /// With `takes_marks`, take_part_in_checkpoints() must follow.
    /// Precondition: graph and config fit (graph_core::check()).
    group_run(graph_core& graph, const flow_config& config, process_id here, engine& over,
              const node_streams& streams, const run_options& options, key_book keys = {},
              bool takes_marks = false);

    /// Called first when this run fails. Set before start().
    void report_failure_to(std::function<void(const run_failure&)> tell) {
        nodes_.report_failure_to(std::move(tell));
    }
    /// Joins the others, then starts the nodes. Does not wait.
    void start(address_book addresses);
    /// Ends the run early, as if a node had failed.
    void fail(run_failure why) noexcept { nodes_.fail(std::move(why)); }

    /// Set when everything has ended.
    event& over() noexcept { return over_here_; }
    std::optional<run_failure> failed() const { return nodes_.failed(); }
    /// Of this process's nodes; empty before they start. Any thread.
    run_report report() const { return nodes_.has_started() ? nodes_.report() : run_report{}; }

    /// For a sampler.
    local_nodes& nodes() noexcept { return nodes_; }

private:
    void supervise(const address_book& addresses);

    local_nodes nodes_;
    run_context run_;
    channel_set channels_;
    neighbors others_;
    channel_calls calls_;
    loop_termination loops_;
    event over_here_;
    ult supervisor_;
};

/// Indices of the nodes of group `group`.
std::vector<std::size_t> nodes_of(const graph_core& graph, std::size_t group);

}  // namespace amalgam::detail
