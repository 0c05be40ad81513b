#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/one_sided.hpp>
#include <amalgam/fabric/shared_block.hpp>

namespace amalgam::detail {

/// Memory of this end that is registered with the carrier, or will be at its first transfer.
struct pinned_memory {
    std::byte* first = nullptr;
    std::size_t bytes = 0;
    std::uint64_t owner = 0;  ///< Region that it belongs to; 0: a block, or one transfer's.
    void* registered = nullptr;
    std::uint32_t uses = 0;
    bool leaves = true;  ///< Its owner is gone: unregistered with its last use.

    bool holds(const_bytes some) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(some.data());
        const auto from = reinterpret_cast<std::uintptr_t>(first);
        return at >= from && at - from <= bytes && some.size() <= bytes - (at - from);
    }
};

/// Blocks on their way to and from the port's thread. A block that was freed waits here, so that no
/// other memory takes its address while the carrier still knows it.
struct blocks_in_transit {
    std::mutex lock;
    bool port_is_gone = false;
    std::size_t live = 0;              ///< For which `freed` has capacity.
    std::vector<mutable_bytes> fresh;  ///< Allocated, and not known to the port's thread.
    std::vector<shared_block> freed;
    std::atomic<bool> any{false};

    /// With the lock held. False: the port's thread may know of the block. Else who drops it frees
    /// it: threads that take and free many would fill the memory faster than one can free it.
    bool forget(mutable_bytes block) noexcept;
};

/// Local registrations. The user's regions and the port's blocks are registered once, at the first
/// transfer from or to them, and until they close. Other memory is registered for one transfer.
///
/// Threads: the port's thread; the blocks that allocate() returns may be freed on any.
/// Cost:    finding memory is logarithmic in the number of regions and blocks.
class local_memory {
public:
    explicit local_memory(one_sided_carrier& carrier);
    /// Precondition: nothing is in use.
    ~local_memory();
    local_memory(const local_memory&) = delete;

    /// The registration that `some` lies in. Failure: as register_memory(); nothing is in use then.
    result<pinned_memory*> use(mutable_bytes some) noexcept;
    void leave(pinned_memory&) noexcept;

    /// Failure: those segments are registered for each transfer.
    void region_opened(std::uint64_t region, scatter segments) noexcept;
    void region_closed(std::uint64_t region, scatter segments) noexcept;
    /// A block of private memory, registered as said above. Any thread.
    result<shared_block> allocate(std::size_t bytes) noexcept;
    /// Unregisters blocks that were freed. Cost: one load if there are none.
    void look_at_blocks() noexcept;

private:
    pinned_memory* find(const_bytes some) noexcept;
    void add(std::byte* first, std::size_t bytes, std::uint64_t owner);
    void remove(const std::byte* first, std::size_t bytes, std::uint64_t owner) noexcept;
    void unregister(pinned_memory&) noexcept;

    one_sided_carrier& carrier_;
    /// By address. Not a sorted array: an application may open 100,000 regions, in any order.
    std::multimap<const std::byte*, std::unique_ptr<pinned_memory>, std::less<>> known_;
    std::vector<std::unique_ptr<pinned_memory>> leaving_;  ///< In use, and their owners gone.
    const std::shared_ptr<blocks_in_transit> blocks_;
};

}  // namespace amalgam::detail
