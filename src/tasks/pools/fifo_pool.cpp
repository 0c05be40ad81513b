#include <amalgam/tasks/fifo_pool.hpp>

#include "tasks/idle/bell.hpp"

namespace amalgam {

void fifo_pool::push(work_unit& unit) noexcept {
    if (!on_own_stream()) return push_outside(unit);
    look_at_inbox(0);  // What others have pushed before stays before it.
    push_own(unit);
}

// In the inbox such a unit is its own predecessor, which no unit in a list is.
void fifo_pool::push_by_priority(work_unit& unit) noexcept {
    if (!on_own_stream()) {
        unit.prev_in_pool = &unit;
        // First, as the push may end the pool's life. A check in between only costs time: the unit
        // then waits for the next one, as any other does.
        unlooked_.store(0, std::memory_order_relaxed);
        return push_outside(unit);
    }
    own_.push_by_priority(unit);
    add_own_size(1);
}

void fifo_pool::push_outside(work_unit& unit) noexcept {
    inbox_size_.fetch_add(1, std::memory_order_relaxed);
    push_chain(unit, unit);
}

// `newest` leads to `oldest` through next_in_pool.
[[gnu::always_inline]] inline void fifo_pool::push_chain(work_unit& oldest,
                                                         work_unit& newest) noexcept {
    // Once a unit is visible it may run, and end the life of this pool.
    std::uintptr_t before = inbox_.load(std::memory_order_relaxed);
    do {
        oldest.next_in_pool = has_units(before) ? reinterpret_cast<work_unit*>(before) : nullptr;
        // seq_cst: half of the protocol with a stream that goes to sleep, see bell.hpp.
    } while (!inbox_.compare_exchange_weak(before, reinterpret_cast<std::uintptr_t>(&newest),
                                           std::memory_order_seq_cst, std::memory_order_relaxed));
    // Whoever finds the inbox empty rings for all that follow until it is taken.
    if (!has_units(before) && before != empty_mark) {
        reinterpret_cast<detail::bell*>(before - empty_mark)->ring();
    }
}

void fifo_pool::push_many(std::span<work_unit* const> units) noexcept {
    if (units.empty()) return;
    if (on_own_stream()) {
        look_at_inbox(0);
        for (work_unit* each : units)
            own_.push_back(*each);
        add_own_size(static_cast<std::ptrdiff_t>(units.size()));
        return;
    }
    inbox_size_.fetch_add(units.size(), std::memory_order_relaxed);
    for (std::size_t i = 1; i < units.size(); ++i)
        units[i]->next_in_pool = units[i - 1];
    push_chain(*units.front(), *units.back());
}

std::size_t fifo_pool::pop_many(std::span<work_unit*> into) noexcept {
    look_at_inbox(0);
    std::size_t taken = 0;
    while (taken < into.size() && !own_.empty())
        into[taken++] = own_.pop_front();
    add_own_size(-static_cast<std::ptrdiff_t>(taken));
    count_taken(taken);
    return taken;
}

void fifo_pool::visit(unit_visitor see) {
    check_may_pop("look into");
    look_at_inbox(0);
    own_.visit(see);
}

std::uintptr_t fifo_pool::empty_inbox() const noexcept {
    detail::bell* const rung = pool::own_.bell.load(std::memory_order_acquire);
    return reinterpret_cast<std::uintptr_t>(rung) | empty_mark;
}

// The new server sees units already there before it sleeps. seq_cst: it also sees one that replaced
// the old mark.
void fifo_pool::server_changed() noexcept {
    std::uintptr_t now = inbox_.load(std::memory_order_relaxed);
    while (!has_units(now) &&
           !inbox_.compare_exchange_weak(now, empty_inbox(), std::memory_order_seq_cst)) {
    }
}

void fifo_pool::drain_inbox() noexcept {
    unlooked_.store(most_unlooked, std::memory_order_relaxed);
    const std::uintptr_t taken = inbox_.exchange(empty_inbox(), std::memory_order_acq_rel);
    work_unit* newest = has_units(taken) ? reinterpret_cast<work_unit*>(taken) : nullptr;
    work_unit* oldest = nullptr;
    while (newest != nullptr) {
        work_unit* const older = newest->next_in_pool;
        newest->next_in_pool = oldest;
        oldest = newest;
        newest = older;
    }
    std::size_t count = 0;
    while (oldest != nullptr) {
        work_unit* const newer = oldest->next_in_pool;
        if (oldest->prev_in_pool == oldest) {
            own_.push_by_priority(*oldest);
        } else {
            own_.push_back(*oldest);
        }
        oldest = newer;
        ++count;
    }
    inbox_size_.fetch_sub(count, std::memory_order_relaxed);
    add_own_size(static_cast<std::ptrdiff_t>(count));
}

bool fifo_pool::remove(work_unit& unit) noexcept {
    if (has_units(inbox_.load(std::memory_order_relaxed))) drain_inbox();
    if (!own_.holds(unit)) return false;
    own_.remove(unit);
    add_own_size(-1);
    count_taken(1);
    return true;
}

bool fifo_pool::empty() const noexcept {
    return own_size_.load(std::memory_order_relaxed) == 0 &&
           !has_units(inbox_.load(std::memory_order_seq_cst));
}

std::size_t fifo_pool::size() const noexcept {
    return own_size_.load(std::memory_order_relaxed) + inbox_size_.load(std::memory_order_relaxed);
}

}  // namespace amalgam
