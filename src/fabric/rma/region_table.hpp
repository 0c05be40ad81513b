#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/frames/slot_ids.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

struct peer_record;

/// One registered region. Its segments never change while it is open.
struct region_entry {
    std::uint64_t secret = 0;
    std::uint64_t id = 0;  ///< Slot and generation; 0 if the slot is free.
    std::uint64_t bytes = 0;
    access rights = access::read;
    std::uint32_t uses = 0;  ///< Frames being sent from, or received into, its memory.
    std::vector<mutable_bytes> segments;
    std::vector<std::uint64_t> starts;  ///< Offset of each segment.

    /// Position of `offset`. Precondition: offset <= bytes.
    /// Cost: logarithmic in the number of segments.
    segment_cursor at(std::uint64_t offset) const noexcept;
    /// The key given to its users.
    remote_key key(std::uint64_t incarnation) const noexcept;
};

/// The regions of one port, and the check before every access to them.
///
/// A key opens a region only if every part is as issued: secret, slot and generation, incarnation,
/// length and rights. Keys bound to one peer differ in the secret.
///
/// Threads: the port's thread.
class region_table {
public:
    explicit region_table(std::uint64_t incarnation) noexcept : incarnation_(incarnation) {}

    /// Failure: `no_memory`; `invalid` if the segments together exceed the address space.
    result<remote_key> open(scatter segments, access rights) noexcept;
    /// Returns true if `id` was open.
    bool close(std::uint64_t id) noexcept;

    /// The region that `key` opens for `asked` on [offset, offset + bytes); nullptr if denied.
    /// Valid until the next open() or close().
    region_entry* check(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                        access asked) noexcept;
    /// The same for a key that is bound to `by` (bound_key.hpp), or is for everybody.
    region_entry* check(const peer_record& by, const remote_key& key, std::uint64_t offset,
                        std::uint64_t bytes, access asked) noexcept {
        region_entry* const entry = check(key, offset, bytes, asked);
        return entry != nullptr ? entry : check_bound(by, key, offset, bytes, asked);
    }
    /// The open region of that id, or nullptr.
    region_entry* find(std::uint64_t id) noexcept;

private:
    region_entry* check_bound(const peer_record& by, const remote_key& key, std::uint64_t offset,
                              std::uint64_t bytes, access asked) noexcept;

    std::uint64_t incarnation_;
    slot_ids ids_;
    std::vector<region_entry> slots_;
};

}  // namespace amalgam::detail
