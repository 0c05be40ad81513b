#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace amalgam::detail {

/// Ids made of a slot, to index a table with, and the slot's generation: never 0, never given out
/// twice, so that an old id finds nothing.
///
/// Threads: one at a time.
/// Cost:    constant; no allocation but for a slot that was never used.
class slot_ids {
public:
    static std::size_t slot(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id); }

    /// The slot of the id that take() gives next, so that its table can grow first.
    /// Failure: throws std::bad_alloc, and nothing has changed.
    std::size_t make_room() {
        if (free_.empty()) add();
        return free_.back();
    }

    /// Precondition: make_room() was called since the last one.
    std::uint64_t take() noexcept {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        return (std::uint64_t{++generations_[slot]} << 32) | slot;
    }

    /// Precondition: `id` is taken.
    void give_back(std::uint64_t id) noexcept {
        // A slot whose generations are used up retires.
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

    std::vector<std::uint32_t> generations_;  // Of the id now or last in each slot.
    std::vector<std::uint32_t> free_;  // Has room for all slots: giving back never allocates.
};

}  // namespace amalgam::detail
