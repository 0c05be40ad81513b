#pragma once

#include <cstdint>
#include <vector>

#include <amalgam/rpc/archive_context.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

class engine_core;
struct lent;

/// The two ends of the message an archive belongs to: this engine and the peer. Values that are
/// meaningful only between two processes (bulk descriptors) need it to read and write themselves.
/// Archives over other bytes have none.
struct origin {
    engine_core* here = nullptr;
    peer there;
    std::vector<lent>* lends = nullptr;              ///< While writing: see lend().
    std::vector<std::uint64_t>* received = nullptr;  ///< While reading: see take_loan().
    /// Of the call or its procedure. Null or empty: the engine's.
    const archive_context* context = nullptr;
};

}  // namespace amalgam::detail
