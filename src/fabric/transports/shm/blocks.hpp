#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/shared_block.hpp>

#include "fabric/transports/shm/board.hpp"

namespace amalgam::detail {

class shm_shelf;

/// The memory that a port has given out for its peers to map, and shows on its board.
///
/// Blocks are cut from larger pieces of shared memory, *arenas*, each of which has a descriptor and
/// a slot on the board: so that thousands of small blocks need few of either, and a peer maps them
/// by one call.
///
/// Blocks that outlive it keep their bytes, and are shown to nobody any more.
/// Threads: any, and so are blocks; it is destroyed when nobody allocates any more.
class shm_block_table {
public:
    static constexpr std::size_t arena_bytes = std::size_t{64} << 20;  ///< Taken when touched.
    /// A longer block is an arena of its own.
    static constexpr std::size_t largest_cut = arena_bytes / 8;

    /// Failure: throws std::bad_alloc.
    explicit shm_block_table(shm_board& board);
    shm_block_table(const shm_block_table&) = delete;
    ~shm_block_table();

    /// Private memory when no more can be shown.
    /// Failure: as port::allocate().
    result<shared_block> allocate(std::size_t bytes) noexcept;
    /// In which arenas the segments lie, as shm_region_slot tells it.
    /// Precondition: no more segments than a region slot holds.
    std::uint64_t names_of(scatter segments) const noexcept;

    /// How many blocks so far are private for want of something, and of what.
    struct shortage {
        std::size_t blocks = 0;
        status why;
    };
    shortage private_blocks() const noexcept;

private:
    const std::shared_ptr<shm_shelf> shelf_;
};

}  // namespace amalgam::detail
