#include "directory/resources/posting_lists.hpp"

#include <utility>

namespace amalgam::detail {

namespace {
constexpr std::size_t first_table = 64;
}

posting_lists::posting_lists() : table_(first_table, none) {}

std::uint32_t posting_lists::enter(std::uint64_t key, std::uint32_t owner, std::uint32_t chain) {
    const std::uint32_t which = make_place(key, owner, chain);
    list& into = lists_[places_[which].list];
    ++into.owners;
    link(which, into.last);
    return which;
}

void posting_lists::leave(std::uint32_t chain) noexcept {
    while (chain != none) {
        const std::uint32_t which = std::exchange(chain, places_[chain].chain);
        const std::uint32_t from = places_[which].list;
        unlink(which);
        free_place(which);
        --lists_[from].owners;
        drop_if_empty(from);
    }
}

std::size_t posting_lists::count(std::uint64_t key) const noexcept {
    const std::uint32_t which = find(key);
    return which == none ? 0 : lists_[which].owners;
}

std::uint32_t posting_lists::first(std::uint64_t key) const noexcept {
    const std::uint32_t which = find(key);
    return which == none ? none : owned_from(lists_[which].first);
}

std::uint32_t posting_lists::next(std::uint32_t place) const noexcept {
    return owned_from(places_[place].next);
}

std::uint32_t posting_lists::owned_from(std::uint32_t place) const noexcept {
    while (place != none && places_[place].owner == is_mark)
        place = places_[place].next;
    return place;
}

std::uint32_t posting_lists::mark(std::uint64_t key) {
    const std::uint32_t which = make_place(key, is_mark, none);
    ++lists_[places_[which].list].marks;
    link(which, none);
    return which;
}

void posting_lists::move_behind(std::uint32_t mark, std::uint32_t place) noexcept {
    unlink(mark);
    link(mark, place);
}

void posting_lists::remove_mark(std::uint32_t mark) noexcept {
    const std::uint32_t from = places_[mark].list;
    unlink(mark);
    free_place(mark);
    --lists_[from].marks;
    drop_if_empty(from);
}

std::uint32_t posting_lists::find(std::uint64_t key) const noexcept {
    for (std::size_t at = home(key); table_[at] != none; at = (at + 1) & (table_.size() - 1))
        if (lists_[table_[at]].key == key) return table_[at];
    return none;
}

std::uint32_t posting_lists::find_or_make(std::uint64_t key) {
    const std::uint32_t known = find(key);
    if (known != none) return known;
    make_room();
    std::uint32_t made = free_lists_;
    if (made == none) {
        made = static_cast<std::uint32_t>(lists_.size());
        lists_.emplace_back();
    } else {
        free_lists_ = lists_[made].marks;
        lists_[made] = {};
    }
    lists_[made].key = key;
    std::size_t at = home(key);
    while (table_[at] != none)
        at = (at + 1) & (table_.size() - 1);
    table_[at] = made;
    ++used_;
    return made;
}

void posting_lists::make_room() {
    if (2 * (used_ + 1) <= table_.size()) return;
    std::vector<std::uint32_t> larger(2 * table_.size(), none);
    table_.swap(larger);
    for (const std::uint32_t which : larger) {
        if (which == none) continue;
        std::size_t at = home(lists_[which].key);
        while (table_[at] != none)
            at = (at + 1) & (table_.size() - 1);
        table_[at] = which;
    }
}

void posting_lists::drop_if_empty(std::uint32_t which) noexcept {
    if (lists_[which].owners != 0 || lists_[which].marks != 0) return;
    const std::size_t last = table_.size() - 1;
    std::size_t hole = home(lists_[which].key);
    while (table_[hole] != which)
        hole = (hole + 1) & last;
    // Moves displaced entries into the hole, so that probing never stops too early.
    for (std::size_t at = (hole + 1) & last; table_[at] != none; at = (at + 1) & last) {
        const std::size_t wanted = home(lists_[table_[at]].key);
        if (((at - wanted) & last) < ((at - hole) & last)) continue;
        table_[hole] = table_[at];
        hole = at;
    }
    table_[hole] = none;
    lists_[which].marks = free_lists_;
    free_lists_ = which;
    --used_;
}

/// For the list of `key`, not linked into it yet.
std::uint32_t posting_lists::make_place(std::uint64_t key, std::uint32_t owner,
                                        std::uint32_t chain) {
    if (free_places_ == none) {
        places_.emplace_back();
        free_place(static_cast<std::uint32_t>(places_.size() - 1));
    }
    const std::uint32_t of = find_or_make(key);
    const std::uint32_t which = std::exchange(free_places_, places_[free_places_].chain);
    places_[which] = {none, none, owner, chain, of};
    return which;
}

void posting_lists::free_place(std::uint32_t which) noexcept {
    places_[which].chain = free_places_;
    free_places_ = which;
}

/// After `behind`, or at the front if that is none. Uses the place's own list.
void posting_lists::link(std::uint32_t which, std::uint32_t behind) noexcept {
    list& into = lists_[places_[which].list];
    const std::uint32_t after = behind == none ? into.first : places_[behind].next;
    places_[which].previous = behind;
    places_[which].next = after;
    (behind == none ? into.first : places_[behind].next) = which;
    (after == none ? into.last : places_[after].previous) = which;
}

void posting_lists::unlink(std::uint32_t which) noexcept {
    list& from = lists_[places_[which].list];
    const std::uint32_t before = places_[which].previous;
    const std::uint32_t after = places_[which].next;
    (before == none ? from.first : places_[before].next) = after;
    (after == none ? from.last : places_[after].previous) = before;
}

}  // namespace amalgam::detail
