#pragma once

#include <cstddef>
#include <mutex>

#include <amalgam/rpc/detail/inside.hpp>

namespace amalgam::detail {

/// What blocks of a cache are made of: memory of the engine's ports, because only that can be
/// mapped by peers. Small blocks are cut from one piece, which is given back when all of them are.
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
    std::size_t cut_ = piece_bytes;  ///< Of the piece: given away.
};

}  // namespace amalgam::detail
