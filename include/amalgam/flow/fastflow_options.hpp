#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include <amalgam/core/result.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

/// What a node does by default when its stream cannot be finished: writes the sentence to stderr
/// and ends the process with exit code 1, without destructors, because other nodes still run.
[[noreturn]] void print_and_exit(const failure& why);

/// How a node that sends or receives behaves. Every field has a default that suits most.
struct fastflow_options {
    /// Items travel together once they fill this; sooner when the receiver has nothing to do.
    std::size_t batch_bytes = std::size_t{64} << 10;
    /// Of one sender and receiver: sent, and not yet consumed.
    unsigned batches_in_flight = 4;
    /// How long senders look for their receivers, and receivers wait for their senders.
    std::chrono::nanoseconds join_limit = std::chrono::seconds(30);
    /// Runs once, when the other end is lost or failed, or items cannot be read or written; on a
    /// thread of its own, after the other ends were told. When it returns, the stream ends early:
    /// a receiver gives end-of-stream, a sender deletes what it gets. It must not destroy the node.
    std::function<void(const failure&)> on_failure = print_and_exit;
    engine_options engine{};
};

}  // namespace amalgam
