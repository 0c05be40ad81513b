#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace amalgam::detail {

/// Lists by key, each in order of entry: the owners of an attribute value. An entry is a place. The
/// places of one owner are chained, so that it leaves all its lists at once. A mark is a place
/// without an owner: the position of a reader that walks a list while it changes.
///
/// Two values with one key share a list, so readers compare what they find.
/// Threads: one at a time.
/// Failure: entering throws std::bad_alloc and then changes nothing.
/// Cost:    one table lookup per entry; no allocation in steady state.
class posting_lists {
public:
    static constexpr std::uint32_t none = ~0u;

    posting_lists();

    /// Adds `owner` at the end of the list of `key`, and links the place to `chain`, an earlier
    /// place of the same owner or none. Returns the place.
    std::uint32_t enter(std::uint64_t key, std::uint32_t owner, std::uint32_t chain);
    /// The owner's next place, and a way to set it.
    std::uint32_t chained(std::uint32_t place) const noexcept { return places_[place].chain; }
    void chain(std::uint32_t place, std::uint32_t next) noexcept { places_[place].chain = next; }
    /// Removes every place of that chain from its list.
    void leave(std::uint32_t chain) noexcept;

    /// Number of owners in the list of `key`.
    std::size_t count(std::uint64_t key) const noexcept;
    /// First place in the list of `key`; none if empty. Skips marks.
    std::uint32_t first(std::uint64_t key) const noexcept;
    std::uint32_t next(std::uint32_t place) const noexcept;
    std::uint32_t owner(std::uint32_t place) const noexcept { return places_[place].owner; }

    /// A mark before the first place of the list of `key`, which may be empty.
    std::uint32_t mark(std::uint64_t key);
    /// Moves a mark after a place of its list.
    void move_behind(std::uint32_t mark, std::uint32_t place) noexcept;
    void remove_mark(std::uint32_t mark) noexcept;

    std::size_t lists() const noexcept { return used_; }
    /// Allocated lists: the peak number in use.
    std::size_t kept() const noexcept { return lists_.size(); }

private:
    static constexpr std::uint32_t is_mark = none - 1;
    struct entry {
        std::uint32_t next;
        std::uint32_t previous;
        std::uint32_t owner;  // Or is_mark.
        std::uint32_t chain;  // The owner's next place; for a free place, the next free one.
        std::uint32_t list;
    };
    struct list {
        std::uint64_t key = 0;
        std::uint32_t first = none;
        std::uint32_t last = none;
        std::uint32_t owners = 0;
        std::uint32_t marks = 0;  // For a free list: the next free one.
    };

    std::uint32_t find(std::uint64_t key) const noexcept;  // A list, or none.
    std::uint32_t find_or_make(std::uint64_t key);
    void make_room();
    void drop_if_empty(std::uint32_t which) noexcept;
    std::uint32_t make_place(std::uint64_t key, std::uint32_t owner, std::uint32_t chain);
    void free_place(std::uint32_t which) noexcept;
    void link(std::uint32_t which, std::uint32_t behind) noexcept;
    void unlink(std::uint32_t which) noexcept;
    std::uint32_t owned_from(std::uint32_t place) const noexcept;
    std::size_t home(std::uint64_t key) const noexcept { return key & (table_.size() - 1); }

    std::vector<entry> places_;
    std::vector<list> lists_;
    std::vector<std::uint32_t> table_;  // Lists by key: open addressing, at most half full.
    std::size_t used_ = 0;
    std::uint32_t free_places_ = none;
    std::uint32_t free_lists_ = none;
};

}  // namespace amalgam::detail
