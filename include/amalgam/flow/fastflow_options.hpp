#pragma once

#include <cstddef>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

/// Default for on_failure: writes the message to stderr and exits with code 1, without running
/// destructors, because other nodes are still running.
[[noreturn]] void print_and_exit(const failure& why);

/// Options of a FastFlow sender or receiver. The defaults suit most programs.
struct fastflow_options {
    /// Items are batched up to this size; a batch leaves sooner if the receiver is idle.
    std::size_t batch_bytes = std::size_t{64} << 10;
    /// Per sender and receiver: batches sent and not yet consumed.
    unsigned batches_in_flight = 4;
    /// How long senders look for their receivers, and receivers wait for their senders.
    std::chrono::nanoseconds join_limit = std::chrono::seconds(30);
    /// Called once, if the other end is lost or fails, or items cannot be read or written. Runs on
    /// a thread of its own, after the other ends were told. When it returns, the stream ends early:
    /// a receiver emits end-of-stream, a sender deletes its input. It must not destroy the node.
    std::function<void(const failure&)> on_failure = print_and_exit;
    engine_options engine{};
};

}  // namespace amalgam
