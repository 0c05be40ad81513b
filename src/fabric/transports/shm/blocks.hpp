#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/shared_block.hpp>

#include "fabric/transports/shm/board.hpp"

namespace amalgam::detail {

class shm_block;

/// The memory that a port has given out for its peers to map, and shows on its board.
///
/// Blocks that outlive it keep their bytes, and are shown to nobody any more.
/// Threads: the port's.
class shm_block_table {
public:
    explicit shm_block_table(shm_board& board) noexcept : board_(board) {}
    shm_block_table(const shm_block_table&) = delete;
    ~shm_block_table();

    /// Private memory when no more can be shown.
    /// Failure: as port::allocate().
    result<shared_block> allocate(std::size_t bytes) noexcept;
    /// In which blocks the segments lie, as shm_region_slot tells it.
    /// Precondition: no more segments than a region slot holds.
    std::uint64_t names_of(scatter segments) const noexcept;

    /// How many blocks so far are private for want of something, and of what.
    std::size_t private_count() const noexcept { return private_count_; }
    status why_private() const noexcept { return why_private_; }

private:
    friend class shm_block;

    result<shared_block> allocate_shared(std::size_t bytes);
    void remove(shm_block& block) noexcept;

    shm_board& board_;
    std::vector<shm_block*> by_address_;
    std::bitset<shm_board_layout::block_count> taken_;
    std::size_t private_count_ = 0;
    status why_private_;
};

}  // namespace amalgam::detail
