#include "directory/resources/store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <amalgam/core/hash.hpp>
#include <amalgam/core/random.hpp>

#include "directory/limits.hpp"

namespace amalgam::detail {

namespace {

// A collision with another attribute, or with an internal key, only makes a list longer.
std::uint64_t hash(const_bytes bytes, std::uint64_t seed) noexcept {
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8)
        seed = mix(seed ^ load_le<std::uint64_t>(at));
    std::uint64_t rest = 0;
    if (left != 0) std::memcpy(&rest, at, left);
    return mix(seed ^ rest ^ bytes.size() << 56);
}

}  // namespace

resource_store::resource_store()
    : seed_(random_u64()), range_order_(limits::id_ranges), records_(1) {}

void resource_store::own_range(std::uint32_t range) {
    if (range_order_[range] != 0) return;
    owned_.push_back(range);
    retired_.push_back(false);
    range_order_[range] = static_cast<std::uint16_t>(owned_.size());
    unused_ += limits::ids_per_range - (owned_.size() == 1 ? 1 : 0);  // Slot 0 is never used.
}

void resource_store::retire_range(std::uint32_t range) {
    if (range_order_[range] == 0) return;
    const std::uint32_t which = range_order_[range] - 1u;
    const std::uint32_t begin = which * limits::ids_per_range, end = begin + limits::ids_per_range;
    if (is_retired(begin)) return;
    retired_[which] = true;
    if (fresh_ < end) unused_ -= end - std::max(fresh_, begin);
    skip_retired();
    std::uint32_t slot = std::exchange(first_freed_, no_slot);
    freed_ = 0;
    while (slot != no_slot) {
        const std::uint32_t after = std::exchange(records_[slot].freed_after, no_slot);
        if (!is_retired(slot)) put_with_freed(slot);
        slot = after;
    }
}

void resource_store::skip_retired() noexcept {
    while (fresh_ < owned_.size() * limits::ids_per_range && is_retired(fresh_))
        fresh_ = (fresh_ / limits::ids_per_range + 1) * limits::ids_per_range;
}

void resource_store::put_with_freed(std::uint32_t slot) noexcept {
    (first_freed_ == no_slot ? first_freed_ : records_[last_freed_].freed_after) = slot;
    last_freed_ = slot;
    ++freed_;
}

std::uint32_t resource_store::slot_of(resource_id id) const noexcept {
    const auto number = static_cast<std::uint32_t>(id);
    const std::uint32_t range = number / limits::ids_per_range;
    if (range >= limits::id_ranges || range_order_[range] == 0) return no_slot;
    return (range_order_[range] - 1) * limits::ids_per_range + number % limits::ids_per_range;
}

resource_id resource_store::id_of(std::uint32_t slot) const noexcept {
    return static_cast<resource_id>(owned_[slot / limits::ids_per_range] * limits::ids_per_range +
                                    slot % limits::ids_per_range);
}

std::uint64_t resource_store::key_of(const attribute& one) const noexcept {
    const const_bytes name(reinterpret_cast<const std::byte*>(one.name.data()), one.name.size());
    return hash(one.value, hash(name, seed_));
}

std::uint64_t resource_store::key_of_context(resource_id context) const noexcept {
    return mix(seed_ + static_cast<std::uint32_t>(context));
}

void resource_store::take_from_freed(std::uint32_t slot) noexcept {
    std::uint32_t before = no_slot;
    for (std::uint32_t each = first_freed_; each != slot; each = records_[each].freed_after)
        before = each;
    const std::uint32_t after = std::exchange(records_[slot].freed_after, no_slot);
    (before == no_slot ? first_freed_ : records_[before].freed_after) = after;
    if (last_freed_ == slot) last_freed_ = before;
    --freed_;
}

std::uint32_t resource_store::free_slot(resource_id wanted) const noexcept {
    if (wanted == resource_id::none)
        return fresh_ < owned_.size() * limits::ids_per_range ? fresh_ : first_freed_;
    const std::uint32_t slot = slot_of(wanted);
    if (slot == no_slot || slot == 0 || (slot >= fresh_ && !is_retired(slot))) return no_slot;
    return slot < records_.size() && records_[slot].memory != nullptr ? no_slot : slot;
}

std::unique_ptr<std::uint64_t[]> resource_store::copy_of(const attribute_view& what) {
    const std::size_t bytes = what.bytes().size();
    auto memory = std::make_unique<std::uint64_t[]>(bytes / 8 + 1);
    if (bytes != 0) std::memcpy(memory.get(), what.bytes().data(), bytes);
    return memory;
}

void resource_store::change(resource_id id, attribute_view what) {
    const std::uint32_t slot = slot_of(id);
    record& one = records_[slot];
    auto memory = copy_of(what);
    // The chain starts with the places of the attributes, last attribute first; then the others.
    std::vector<std::uint32_t> had(one.what.size()), has, entered;
    has.reserve(what.size());
    entered.reserve(what.size());
    std::uint32_t rest = one.places;
    for (std::size_t i = had.size(); i-- > 0; rest = lists_.chained(rest))
        had[i] = rest;
    const auto stays_at = [&](const attribute& wanted) {
        std::size_t i = 0;
        for (const attribute& each : one.what) {
            if (each.name == wanted.name)
                return each.text() == wanted.text() ? std::exchange(had[i], posting_lists::none)
                                                    : posting_lists::none;
            ++i;
        }
        return posting_lists::none;
    };
    try {
        for (const attribute& each : what) {
            std::uint32_t place = stays_at(each);
            if (place == posting_lists::none) {
                place = lists_.enter(key_of(each), slot, posting_lists::none);
                entered.push_back(place);
            }
            has.push_back(place);
        }
    } catch (...) {
        for (const std::uint32_t each : entered)
            lists_.leave(each);
        throw;
    }
    for (const std::uint32_t each : had) {
        if (each == posting_lists::none) continue;
        lists_.chain(each, posting_lists::none);
        lists_.leave(each);
    }
    for (const std::uint32_t each : has) {
        lists_.chain(each, rest);
        rest = each;
    }
    one.places = rest;
    one.what =
        what.rebased({reinterpret_cast<const std::byte*>(memory.get()), what.bytes().size()});
    one.memory = std::move(memory);
}

resource_id resource_store::add(resource_id context, attribute_view what, resource_id wanted) {
    const std::size_t bytes = what.bytes().size();
    auto memory = copy_of(what);
    const std::uint32_t slot = free_slot(wanted);
    if (slot == no_slot) return resource_id::none;
    const bool fresh = slot == fresh_;
    if (slot >= records_.size()) records_.resize(slot + std::size_t{1});
    record& into = records_[slot];
    into.what = what.rebased({reinterpret_cast<const std::byte*>(memory.get()), bytes});
    into.memory = std::move(memory);
    into.context = context;
    try {
        put_into_lists(slot);
    } catch (...) {
        lists_.leave(into.places);
        const std::uint32_t after = into.freed_after;
        into = {};
        into.freed_after = after;
        throw;
    }
    if (fresh) {
        ++fresh_;
        --unused_;
        skip_retired();
    } else if (!is_retired(slot)) {
        take_from_freed(slot);
    }
    ++size_;
    return id_of(slot);
}

void resource_store::put_into_lists(std::uint32_t slot) {
    record& one = records_[slot];
    const auto enter = [&](std::uint64_t key) { one.places = lists_.enter(key, slot, one.places); };
    enter(key_of_all);
    if (one.context != resource_id::none) enter(key_of_context(one.context));
    for (const attribute& each : one.what)
        enter(key_of(each));
}

bool resource_store::remove(resource_id id) noexcept {
    const std::uint32_t slot = slot_of(id);
    if (slot >= records_.size() || records_[slot].memory == nullptr) return false;
    lists_.leave(records_[slot].places);
    records_[slot] = {};
    if (!is_retired(slot)) put_with_freed(slot);
    --size_;
    return true;
}

resource_id resource_store::first_of(resource_id context) const noexcept {
    for (std::uint32_t place = lists_.first(key_of_context(context)); place != posting_lists::none;
         place = lists_.next(place)) {
        const std::uint32_t slot = lists_.owner(place);
        if (records_[slot].context == context) return id_of(slot);
    }
    return resource_id::none;
}

resource_store::found resource_store::found_at(std::uint32_t slot) const noexcept {
    return {id_of(slot), records_[slot].context, records_[slot].what};
}

resource_store::found resource_store::find(resource_id id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    if (slot >= records_.size() || records_[slot].memory == nullptr) return {};
    return found_at(slot);
}

resource_store::found resource_store::find_first(const attribute_view& query,
                                                 std::size_t& looks) const noexcept {
    for (std::uint32_t place = lists_.first(shortest(query)); place != posting_lists::none;
         place = lists_.next(place)) {
        if (looks == 0) return {};
        --looks;
        const found one = found_at(lists_.owner(place));
        if (one.fits(query)) return one;
    }
    looks = std::max<std::size_t>(looks, 1);
    return {};
}

std::uint64_t resource_store::shortest(const attribute_view& query) const noexcept {
    std::uint64_t best = key_of_all;
    std::size_t least = lists_.count(key_of_all);
    for (const attribute& each : query) {
        if (each.is_open) continue;
        const std::uint64_t key = key_of(each);
        const std::size_t owners = lists_.count(key);
        if (best != key_of_all && owners >= least) continue;
        best = key;
        least = owners;
    }
    return best;
}

std::uint64_t resource_store::key_in_all(const attribute_view& query) const noexcept {
    for (const attribute& each : query)
        if (!each.is_open) return key_of(each);
    return key_of_all;
}

bool resource_store::found::fits(const attribute_view& query) const noexcept {
    for (const attribute& each : query) {
        if (each.is_open) continue;
        const auto mine = what.find(each.name);
        if (!mine || mine->text() != each.text()) return false;
    }
    return true;
}

store_search::store_search(resource_store& in, attribute_view query)
    : store_(in), query_(query), mark_(in.lists_.mark(in.shortest(query))) {}

store_search::~store_search() {
    store_.lists_.remove_mark(mark_);
}

store_search::outcome store_search::next(resource_store::found& into, std::size_t looks) noexcept {
    posting_lists& lists = store_.lists_;
    std::uint32_t last = mark_;
    outcome how = outcome::over;
    for (std::uint32_t place = lists.next(mark_); place != posting_lists::none;
         place = lists.next(place)) {
        if (looks-- == 0) {
            how = outcome::unfinished;
            break;
        }
        last = place;
        const resource_store::found one = store_.found_at(lists.owner(place));
        if (!one.fits(query_)) continue;
        into = one;
        how = outcome::found;
        break;
    }
    if (last != mark_) lists.move_behind(mark_, last);
    return how;
}

}  // namespace amalgam::detail
