#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace amalgam::detail {

/// Ids composed of a slot, which indexes a table, and the slot's generation. Never 0 and never
/// reused, so a stale id matches nothing.
///
/// Threads: one at a time.
/// Cost:    constant; allocates only for a slot that was never used.
class slot_ids {
public:
    static std::size_t slot(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id); }

    /// The slot of the id that take() returns next, so that the table can grow first.
    /// Failure: throws std::bad_alloc, with no effect.
    std::size_t make_room() {
        if (free_.empty()) add();
        return free_.back();
    }

    /// Precondition: make_room() was called since the last take().
    std::uint64_t take() noexcept {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        return (std::uint64_t{++generations_[slot]} << 32) | slot;
    }

    /// Precondition: `id` is taken.
    void give_back(std::uint64_t id) noexcept {
        // A slot that has used up its generations is retired.
        if (generations_[slot(id)] != std::numeric_limits<std::uint32_t>::max())
            free_.push_back(static_cast<std::uint32_t>(slot(id)));
    }

private:
    void add() {
        const std::size_t slots = generations_.size();
        if (free_.capacity() <= slots) free_.reserve(std::max<std::size_t>(16, 2 * slots));
        generations_.push_back(0);
        free_.push_back(static_cast<std::uint32_t>(slots));
    }

    std::vector<std::uint32_t> generations_;  // Current or last generation of each slot.
    std::vector<std::uint32_t> free_;  // Capacity for all slots: giving back never allocates.
};

}  // namespace amalgam::detail
