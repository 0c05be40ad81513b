#pragma once

#include <cstddef>
#include <mutex>

#include <amalgam/rpc/extension/inside.hpp>

namespace amalgam::detail {

/// Memory for the blocks of a cache, allocated from the engine's ports, because peers can map only
/// that. Small blocks are cut from one piece, which is freed once all its blocks are.
///
/// Threads: any.
class cache_memory {
public:
    static constexpr std::size_t piece_bytes = std::size_t{1} << 20;

    explicit cache_memory(engine_core& core) noexcept : core_(core) {}

    /// Precondition: `bytes` is a power of two, at least a page.
    /// Failure: throws error{no_memory}, error{closed}.
    port_memory allocate(std::size_t bytes);

private:
    engine_core& core_;
    std::mutex lock_;
    port_memory piece_;
    std::size_t cut_ = piece_bytes;  ///< Bytes of the piece handed out.
};

}  // namespace amalgam::detail
