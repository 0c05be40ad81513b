#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/report.hpp>

namespace amalgam {

/// Threads that nodes of one pool (graph::in_pool()) share, and no others use.
struct node_pool {
    unsigned threads = 1;
    /// The cores they are bound to: the i-th thread to the i-th. Empty: to none.
    std::vector<int> cpus{};
};

/// How a run behaves. Every field has a usable default.
struct run_options {
    /// Execution streams that nodes without a pool run on; 0: what the config says, else one per
    /// node, at most one per core. At most flow_config::max_threads, as a pool's.
    unsigned threads = 0;
    /// Pools by name; one that the graph names and this does not has one thread.
    std::map<std::string, node_pool> pools{};
    /// Items that wait between two nodes of one process before the first has to; 1 at least.
    std::size_t queue_items = 1024;
    /// Items to another process travel in batches of about this many bytes, sooner when the
    /// receiver has nothing to do.
    std::size_t batch_bytes = std::size_t{512} << 10;
    /// Bytes that may be on their way from one sender to one receiver, or wait there: what a
    /// receiver holds at most is this, and one batch more, for each of its senders. The same in
    /// every process of a run: a group that sends more than its receiver has room for ends it.
    std::size_t window_bytes = std::size_t{2} << 20;
    /// How long the other groups may take to be reachable; under `amalgam run`, until each of their
    /// processes has called run(), too.
    std::chrono::milliseconds join_limit{30000};
    /// A process of another group that does not answer for so long is lost: it is stopped, or its
    /// machine is. One that a debugger stops is, too; 0: however long. What was killed is noticed
    /// at once, in any case.
    std::chrono::milliseconds silence_limit{5000};
};

/// Runs this process's part of `what`, to its end.
///
/// Started by `amalgam run`, that part is the group the launcher chose, and the launcher tells
/// every process the others' addresses. With AMALGAM_CONFIG (a file) and AMALGAM_GROUP (and
/// AMALGAM_REPLICA, from 0) in the environment it is that group, at the address in the config,
/// which others must know beforehand. With neither it is the whole graph.
///
/// Returns what this process's nodes have done.
///
/// A graph that has ended may run again, but not in a process of a group that `amalgam run`, mpirun
/// or srun has started: such a process runs one graph once.
///
/// Threads: called from a plain thread, which waits. Nodes run as ULTs on threads of the run.
/// Failure: throws error{invalid} when graph and config do not fit, an option cannot be, or the
///          graph runs already, before any node starts;
///          error{handler_failed} with a node's name and text when a node throws;
///          error{disconnected} or {unreachable} with a group's name when it is lost.
run_report run(graph& what, const run_options& options = {});

/// A graph that runs while its user does something else.
///
/// Owner:   borrows the graph, which outlives it. Its end is stop() and wait().
/// Threads: any, one at a time; stop() at any time.
class running_graph {
public:
    running_graph(running_graph&&) noexcept;
    running_graph& operator=(running_graph&&) noexcept;
    ~running_graph();

    /// Returns what run() would, when it has ended. Failure: throws as run(); error{invalid} of one
    /// that was moved from.
    run_report wait();
    /// Ends it early, in all processes: wait() throws error{canceled}. Does not wait; does
    /// nothing for one that was moved from.
    void stop() noexcept;

private:
    struct state;
    friend running_graph start(graph& what, const run_options& options);
    explicit running_graph(std::unique_ptr<state> made);

    std::unique_ptr<state> state_;
};

/// run() on a thread of its own. Failure: wait() throws what run() would, also error{invalid} while
/// another run of the graph has not ended.
running_graph start(graph& what, const run_options& options = {});

/// run() for a main(): returns 0, or 1 after printing why to standard error. In the environment:
///
///     AMALGAM_SHOW=dot, =json   prints the graph instead (see graph::dot()), and runs nothing
///     AMALGAM_STATS=1           prints run_report::text() of this process to standard error
///     AMALGAM_REPORT=FILE       writes run_report::json() of this process there
int run_main(graph& what, const run_options& options = {}) noexcept;

}  // namespace amalgam
