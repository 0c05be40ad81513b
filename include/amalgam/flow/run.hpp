#pragma once

#include <chrono>
#include <cstddef>

#include <amalgam/flow/graph.hpp>

namespace amalgam {

/// How a run behaves. Every field has a usable default.
struct run_options {
    /// Execution streams that nodes run on; 0: what the config says, else one per node, at most
    /// one per core.
    unsigned threads = 0;
    /// Items that wait between two nodes of one process before the first has to.
    std::size_t queue_items = 1024;
    /// Items to another process travel in batches of about this many bytes, sooner when the
    /// receiver has nothing to do.
    std::size_t batch_bytes = std::size_t{64} << 10;
    /// Bytes that may be on their way from one sender to one receiver, or wait there: what a
    /// receiver holds at most is this, and one batch more, for each of its senders.
    std::size_t window_bytes = std::size_t{1} << 20;
    /// How long the other groups may take to be reachable.
    std::chrono::milliseconds join_limit{30000};
};

/// Runs this process's part of `what`, to its end.
///
/// Started by `amalgam run`, that part is the group the launcher chose, and the launcher tells
/// every process the others' addresses. With AMALGAM_CONFIG (a file) and AMALGAM_GROUP (and
/// AMALGAM_REPLICA, from 0) in the environment it is that group, at the address in the config,
/// which others must know beforehand. With neither it is the whole graph.
///
/// Threads: called from a plain thread, which waits. Nodes run as ULTs on threads of the run.
/// Failure: throws error{invalid} when graph and config do not fit, before any node starts;
///          error{handler_failed} with a node's name and text when a node throws;
///          error{disconnected} or {unreachable} with a group's name when it is lost.
void run(graph& what, const run_options& options = {});

/// run() for a main(): returns 0, or 1 after printing why to standard error. With AMALGAM_SHOW=dot
/// or =json in the environment it prints the graph instead (see graph::dot()), and runs nothing.
int run_main(graph& what, const run_options& options = {}) noexcept;

}  // namespace amalgam
