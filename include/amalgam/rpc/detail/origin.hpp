#pragma once

#include <cstdint>
#include <vector>

#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

class engine_core;
struct lent;

/// Whose values an archive carries: the engine at this end of a message, and the peer at the
/// other. What means something between two processes only (a bulk descriptor) reads and writes
/// itself by it. Archives over bytes that travel otherwise have none.
struct origin {
    engine_core* here = nullptr;
    peer there;
    std::vector<lent>* lends = nullptr;              ///< While writing: see lend().
    std::vector<std::uint64_t>* received = nullptr;  ///< While reading: see take_loan().
};

}  // namespace amalgam::detail
