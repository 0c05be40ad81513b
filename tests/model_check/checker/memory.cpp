#include "model_check/checker/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace amalgam::model {
namespace {

bool acquires(std::memory_order order) noexcept {
    return order != std::memory_order_relaxed && order != std::memory_order_release;
}

bool releases(std::memory_order order) noexcept {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

bool happened(const clock_of_threads& what, const clock_of_threads& before) noexcept {
    for (std::size_t i = 0; i < max_threads; ++i) {
        if (what[i] > before[i]) return false;
    }
    return true;
}

constexpr const char* race = "two threads race for plain memory";

}  // namespace

void memory::start(std::size_t threads) {
    if (places_.empty()) places_.resize(max_places);
    used_ = 0;
    thread_count_ = threads;
    fenced_ = accessed_ = {};
    seq_cst_.clear();
    if (++run_ % 4096 == 0) cells_.clear();  // Of memory that is no longer used.
    for (std::size_t i = 0; i < max_threads; ++i) {
        threads_[i] = {};
        threads_[i].now.before[i] = 1;
    }
}

memory::cell& memory::cell_of(std::uintptr_t address) {
    cell& found = cells_[address >> 3];
    if (found.run != run_) {
        found = {};
        found.run = run_;
    }
    return found;
}

std::size_t memory::at(std::uintptr_t address, std::size_t bytes) {
    cell& where = cell_of(address);
    if (where.atomic != 0) {
        place& found = places_[where.atomic - 1u];
        if (found.address == address && found.bytes == bytes) return where.atomic - 1u;
        // Two of them in one word, such as neighbouring flags.
        for (std::size_t i = 0; i < used_; ++i) {
            if (places_[i].address == address && places_[i].bytes == bytes) return i;
        }
    }
    if (used_ == max_places) {
        fmt::print(stderr, "model: more than {} atomics; make the program smaller\n", max_places);
        std::abort();
    }
    place& made = places_[used_];
    made.address = address;
    made.bytes = bytes;
    made.stores.assign(1, {});
    made.order.assign(1, 0);
    made.accessed = made.written = {};
    std::memcpy(&made.stores[0].value, reinterpret_cast<const void*>(address), bytes);
    where.atomic = static_cast<std::uint16_t>(++used_);
    return used_ - 1;
}

void memory::raise(view& what, std::size_t where, std::size_t store) const noexcept {
    const auto number = static_cast<std::uint8_t>(store);
    if (position(where, number) > position(where, what[where])) what[where] = number;
}

void memory::join(view& into, const view& from) const noexcept {
    for (std::size_t i = 0; i < used_; ++i)
        raise(into, i, from[i]);
}

void memory::join(knowledge& into, const knowledge& from) const noexcept {
    join(into.seen, from.seen);
    for (std::size_t i = 0; i < max_threads; ++i)
        into.before[i] = std::max(into.before[i], from.before[i]);
}

std::size_t memory::floor(std::size_t thread, std::size_t where, bool seq_cst) const noexcept {
    const std::size_t own = position(where, threads_[thread].now.seen[where]);
    return seq_cst ? std::max(own, position(where, fenced_[where])) : own;
}

void memory::read(std::size_t thread, std::size_t where, std::size_t store,
                  std::memory_order order) {
    thread_state& me = threads_[thread];
    place& there = places_[where];
    raise(me.now.seen, where, store);
    join(me.acquire, there.stores[store].carries);
    raise(me.acquire.seen, where, store);
    if (acquires(order)) join(me.now, there.stores[store].carries);
    if (order == std::memory_order_seq_cst) raise(accessed_, where, store);
    there.accessed[thread] = me.now.before[thread];
}

void memory::write(std::size_t thread, std::size_t where, std::uint64_t value, std::size_t position,
                   int from, std::memory_order order, int event) {
    thread_state& me = threads_[thread];
    place& there = places_[where];
    const auto number = static_cast<std::uint8_t>(there.stores.size());
    if (there.stores.size() == 255) {
        fmt::print(stderr, "model: more than 255 stores to one atomic; make the program smaller\n");
        std::abort();
    }
    there.stores.emplace_back();
    there.order.insert(there.order.begin() + static_cast<std::ptrdiff_t>(position) + 1, number);
    for (std::size_t i = 0; i < there.order.size(); ++i)
        there.stores[there.order[i]].position = i;
    stored& made = there.stores.back();
    made.value = value;
    made.event = event;
    raise(me.now.seen, where, number);
    raise(me.acquire.seen, where, number);
    made.carries = releases(order) ? me.now : me.release;
    raise(made.carries.seen, where, number);
    if (from >= 0) {
        there.stores[static_cast<std::size_t>(from)].is_taken = true;
        join(made.carries, there.stores[static_cast<std::size_t>(from)].carries);
    }
    if (order == std::memory_order_seq_cst) raise(accessed_, where, number);
    there.accessed[thread] = there.written[thread] = me.now.before[thread];
    std::memcpy(reinterpret_cast<void*>(there.address), &there.stores[there.order.back()].value,
                there.bytes);
}

void memory::fence(std::size_t thread, std::memory_order order) {
    thread_state& me = threads_[thread];
    if (acquires(order)) join(me.now, me.acquire);
    if (order == std::memory_order_seq_cst) {
        join(fenced_, me.now.seen);
        join(me.now.seen, fenced_);
        join(me.now.seen, accessed_);
    }
    join(me.acquire, me.now);
    if (releases(order)) me.release = me.now;
}

void memory::fence_all() {
    // Twice: the barrier is one point in time for all of them.
    for (int i = 0; i < 2; ++i) {
        for (std::size_t each = 0; each < thread_count_; ++each)
            fence(each, std::memory_order_seq_cst);
    }
}

// Two of them are in order if one happens before the other, or by what they do to one atomic.
memory::neighbours memory::order_of(std::size_t thread, std::size_t where, std::size_t at,
                                    bool writes, const clock_of_threads& happened) const {
    neighbours found;
    for (std::size_t i = 0; i < seq_cst_.size(); ++i) {
        const seq_cst_access& each = seq_cst_[i];
        if (each.thread == thread || each.tick <= happened[each.thread])
            found.before |= each.before;
        if (each.where != where) continue;
        const std::size_t its = position(where, each.store);
        if (its > at) {
            found.after.set(i);
        } else if (its < at || writes || each.writes) {
            found.before |= each.before;
        }
    }
    return found;
}

bool memory::has_order(std::size_t thread, std::size_t where, std::size_t at, bool writes) const {
    clock_of_threads happened = threads_[thread].now.before;
    const place& there = places_[where];
    const auto& carried = there.stores[there.order[at]].carries.before;
    for (std::size_t i = 0; i < max_threads && !writes; ++i)
        happened[i] = std::max(happened[i], carried[i]);
    const neighbours found = order_of(thread, where, at, writes, happened);
    return (found.before & found.after).none();
}

void memory::put_in_order(std::size_t thread, std::size_t where, std::size_t store, bool writes) {
    const std::size_t own = seq_cst_.size();
    if (own == accesses().size()) {
        fmt::print(stderr, "model: too many seq_cst accesses; make the program smaller\n");
        std::abort();
    }
    const clock_of_threads& now = threads_[thread].now.before;
    const std::size_t at = position(where, static_cast<std::uint8_t>(store));
    neighbours found = order_of(thread, where, at, writes, now);
    found.before.set(own);
    for (seq_cst_access& each : seq_cst_) {
        if ((each.before & found.after).any()) each.before |= found.before;
    }
    seq_cst_.push_back(
        {thread, now[thread], where, static_cast<std::uint8_t>(store), writes, found.before});
}

void memory::see_newest(std::size_t thread, std::size_t where) noexcept {
    raise(threads_[thread].now.seen, where, places_[where].order.back());
}

const char* memory::check_atomic(std::size_t thread, cell& where, std::uintptr_t address,
                                 std::size_t bytes, bool writes) {
    if (where.atomic == 0) return nullptr;
    const clock_of_threads& now = threads_[thread].now.before;
    for (std::size_t i = 0; i < used_; ++i) {
        place& there = places_[i];
        if (there.address + there.bytes <= address || address + bytes <= there.address) continue;
        if (!happened(writes ? there.accessed : there.written, now))
            return "a plain access races with an atomic one";
        if (!writes) continue;
        there.address = 0;  // Another object begins to live there.
    }
    return nullptr;
}

const char* memory::check(std::size_t thread, std::uintptr_t address, std::size_t bytes,
                          bool writes, bool marks) {
    const clock_of_threads& now = threads_[thread].now.before;
    for (std::uintptr_t at = address, end = address + bytes; at != end;) {
        cell& where = cell_of(at);
        if (where.is_freed) return "memory is used after it was freed";
        const std::uintptr_t stop = std::min(end, (at | 7) + 1);
        if (marks) {
            if (const char* why = check_atomic(thread, where, at, stop - at, writes)) return why;
        }
        for (; at != stop; ++at) {
            const std::size_t byte = at & 7;
            if (where.written[byte] > now[where.writer[byte]]) return race;
            if (writes && !happened(where.read[byte], now)) return race;
            if (!marks) continue;
            if (writes) {
                where.writer[byte] = static_cast<std::uint8_t>(thread);
                where.written[byte] = now[thread];
            } else {
                where.read[byte][thread] = now[thread];
            }
        }
    }
    return nullptr;
}

const char* memory::plain(std::size_t thread, std::uintptr_t address, std::size_t bytes,
                          bool writes) {
    return check(thread, address, bytes, writes, true);
}

const char* memory::plain_before_atomic(std::size_t thread, const place& where, bool writes) {
    return check(thread, where.address, where.bytes, writes, false);
}

const char* memory::freed(std::size_t thread, std::uintptr_t address, std::size_t bytes) {
    if (const char* why = plain(thread, address, bytes, true)) return why;
    for (std::uintptr_t at = address; at < address + bytes; at += 8)
        cell_of(at).is_freed = true;
    return nullptr;
}

}  // namespace amalgam::model
