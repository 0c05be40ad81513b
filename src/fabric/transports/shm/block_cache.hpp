#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/transports/shm/board.hpp"
#include "fabric/transports/shm/mapping.hpp"

namespace amalgam::detail {

/// Blocks of one peer that are mapped here: at the first transfer that touches them, until they
/// are freed, the peer goes, or others take their place.
///
/// Trusts nothing on the peer's board: a range is looked for only within the block that was mapped,
/// and that is memory nobody can make shorter.
/// Threads: the port's.
class shm_block_cache {
public:
    static constexpr std::size_t capacity = 64;

    /// Where those bytes of the peer stand here. nullptr: not mapped, now (no descriptor or no
    /// address space left) or ever (denied() says why).
    ///
    /// What it returned stays mapped, whatever the peer writes meanwhile, until drop_freed(),
    /// clear(), or `capacity` more calls.
    std::byte* locate(const shm_board_view& board, pid_t owner, std::size_t slot, const_bytes range,
                      access asked) noexcept;
    /// Lets go of what its owner has freed. To be called before locate(), but not while what that
    /// returned is in use. Cost: two loads when nothing was.
    void drop_freed(const shm_board_view& board) noexcept;
    void clear() noexcept { blocks_.clear(); }

    std::size_t size() const noexcept { return blocks_.size(); }
    /// ok, or why the kernel does not let us map what this peer shows.
    status denied() const noexcept { return denied_; }

private:
    struct mapped_block {
        std::size_t slot;
        std::uint64_t version;
        std::uint64_t address;  ///< At the owner.
        std::uint64_t bytes;
        shm_mapping memory;
        bool writable;
        std::uint64_t last_use;
    };

    mapped_block* find(std::size_t slot, std::uint64_t version) noexcept;
    mapped_block* map(const shm_board_view& board, pid_t owner, std::size_t slot) noexcept;
    mapped_block* failed(int error) noexcept;

    std::vector<mapped_block> blocks_;
    std::size_t latest_ = 0;  // Where the last one was found.
    std::uint64_t uses_ = 0;
    std::uint64_t freed_seen_ = 0;
    unsigned patience_ = 0;  // So many times we do not try, after a failure that may pass.
    status denied_;
};

}  // namespace amalgam::detail
