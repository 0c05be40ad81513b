#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"

namespace amalgam::detail {

/// Blocks of one peer that are mapped here: from the first transfer that touches them until they
/// are freed, the peer goes, or other blocks evict them.
///
/// Trusts nothing on the peer's registrations: a range is located only within the mapped block,
/// which is memory that nobody can shrink. Threads: the port's thread.
class shm_block_cache {
public:
    static constexpr std::size_t capacity = 64;

    /// Local address of those bytes of the peer. nullptr: they are outside of that block, or it
    /// cannot be mapped, either now (no descriptor or address space left) or ever (denied() says
    /// why).
    ///
    /// The returned memory stays mapped, whatever the peer writes meanwhile, until drop_freed(),
    /// clear(), or `capacity` more calls.
    std::byte* locate(const shm_registrations_view& registrations, pid_t owner, std::size_t slot,
                      const_bytes range, access asked) noexcept;
    /// Unmaps blocks that their owner has freed. Call it before locate(), but not while memory that
    /// locate() returned is in use. Cost: two loads if nothing was freed.
    void drop_freed(const shm_registrations_view& registrations) noexcept;
    void clear() noexcept { blocks_.clear(); }

    std::size_t size() const noexcept { return blocks_.size(); }
    /// From now on nothing is mapped.
    void deny(status why) noexcept {
        clear();
        denied_ = why;
    }
    /// ok, or why the kernel refuses to map this peer's blocks.
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
    mapped_block* map(const shm_registrations_view& registrations, pid_t owner,
                      std::size_t slot) noexcept;
    mapped_block* failed(int error) noexcept;

    std::vector<mapped_block> blocks_;
    std::size_t latest_ = 0;  // Index of the block found last.
    std::uint64_t uses_ = 0;
    std::uint64_t freed_seen_ = 0;
    unsigned skip_attempts_ = 0;  // Attempts to skip after a temporary failure.
    status denied_;
};

}  // namespace amalgam::detail
