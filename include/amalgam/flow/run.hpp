#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/report.hpp>

namespace amalgam {

/// Dedicated threads shared by the nodes of one pool (graph::in_pool()).
struct node_pool {
    unsigned threads = 1;  ///< At least 1.
    /// Cores the threads are bound to, in order. Empty: unbound.
    std::vector<int> cpus{};
};

/// Options of a run. All have usable defaults.
struct run_options {
    /// Execution streams for nodes without a pool; 0: as the config says, else one per node, at
    /// most one per core. Limited, like a pool's threads, to flow_config::max_threads.
    unsigned threads = 0;
    /// Pools by name. A pool the graph names that is missing here has one thread.
    std::map<std::string, node_pool> pools{};
    /// Queue capacity between two nodes of one process; at least 1.
    std::size_t queue_items = 1024;
    /// Approximate batch size for items to another process. A batch leaves sooner if the receiver
    /// is idle.
    std::size_t batch_bytes = std::size_t{512} << 10;
    /// Credit window per sender and receiver: bytes in flight or queued at the receiver. A receiver
    /// holds at most this plus one batch per sender. Must be the same in every process of a run: a
    /// group that exceeds its receiver's window ends the run.
    std::size_t window_bytes = std::size_t{2} << 20;
    /// How long to wait for the other groups to be reachable; under `amalgam run` also for each of
    /// their processes to call run().
    std::chrono::milliseconds join_limit{30000};
    /// A process of another group that is silent for this long, because it or its machine has
    /// stopped, is lost. That includes one halted in a debugger. 0: no limit. A killed process is
    /// noticed at once regardless.
    std::chrono::milliseconds silence_limit{5000};
};

/// Runs this process's part of `what` to its end.
///
/// Under `amalgam run`, the part is the group chosen by the launcher, which also distributes the
/// processes' addresses. With AMALGAM_CONFIG (a file), AMALGAM_GROUP and AMALGAM_REPLICA (from 0)
/// in the environment, it is that group, at the address in the config, which the others must know
/// beforehand. With neither, it is the whole graph.
///
/// Returns statistics of this process's nodes.
///
/// A finished graph may run again, but not in a process of a group started by `amalgam run`, mpirun
/// or srun: such a process runs one graph once.
///
/// Threads: call it from a plain thread, which waits. Nodes run as ULTs on the run's threads.
/// Failure: throws error{invalid}, before any node starts, if graph and config do not match, an
///          option is invalid, or the graph is already running; error{handler_failed} with the
///          node's name and message if a node throws; error{disconnected} or {unreachable} with the
///          group's name if a group is lost.
run_report run(graph& what, const run_options& options = {});

/// A graph running in the background.
///
/// Owner:   borrows the graph, which must outlive it. The destructor is stop() and wait().
/// Threads: any, one at a time; stop() at any time.
class running_graph {
public:
    running_graph(running_graph&&) noexcept;
    running_graph& operator=(running_graph&&) noexcept;
    ~running_graph();

    /// Waits for the run to end and returns what run() would. Failure: throws as run();
    /// error{invalid} if moved from.
    run_report wait();
    /// Ends the run early, in all processes: wait() throws error{canceled}. Does not wait; does
    /// nothing if moved from.
    void stop() noexcept;

private:
    struct state;
    friend running_graph start(graph& what, const run_options& options);
    explicit running_graph(std::unique_ptr<state> made);

    std::unique_ptr<state> state_;
};

/// run() on a thread of its own. Failure: wait() throws what run() would, including error{invalid}
/// while another run of the graph has not ended.
running_graph start(graph& what, const run_options& options = {});

/// run() for a main(): returns 0, or prints the error to stderr and returns 1. Environment:
///
///     AMALGAM_SHOW=dot, =json   prints the graph instead (see graph::dot()), and runs nothing
///     AMALGAM_STATS=1           prints run_report::text() of this process to standard error
///     AMALGAM_REPORT=FILE       writes run_report::json() of this process there
int run_main(graph& what, const run_options& options = {}) noexcept;

}  // namespace amalgam
