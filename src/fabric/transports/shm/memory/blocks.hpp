#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/shared_block.hpp>

#include "fabric/transports/shm/memory/registrations.hpp"

namespace amalgam::detail {

class shm_shelf;

/// Memory that a port allocated for its peers to map, published on its registrations.
///
/// Blocks are cut from larger pieces of shared memory, *arenas*. Each arena has a descriptor and a
/// slot on the registrations, so thousands of small blocks need few of either, and a peer maps many
/// by one call.
///
/// Blocks that outlive the table keep their bytes but are no longer shared.
/// Threads: any, also for blocks. Destroy it once nobody allocates any more.
class shm_block_table {
public:
    static constexpr std::size_t arena_bytes = std::size_t{64} << 20;  ///< Committed when touched.
    /// A longer block gets its own arena.
    static constexpr std::size_t largest_cut = arena_bytes / 8;

    /// Failure: throws std::bad_alloc.
    explicit shm_block_table(shm_registrations& registrations);
    shm_block_table(const shm_block_table&) = delete;
    ~shm_block_table();

    /// Returns private memory if no more can be shared.
    /// Failure: as port::allocate().
    result<shared_block> allocate(std::size_t bytes) noexcept;
    /// The arenas that contain the segments, encoded as in shm_region_slot.
    /// Precondition: no more segments than a region slot holds.
    std::uint64_t names_of(scatter segments) const noexcept;

    /// How many blocks so far are private for lack of a resource, and which.
    struct shortage {
        std::size_t blocks = 0;
        status why;
    };
    shortage private_blocks() const noexcept;

private:
    const std::shared_ptr<shm_shelf> shelf_;
};

}  // namespace amalgam::detail
