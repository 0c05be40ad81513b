#include <amalgam/tasks/fifo_pool.hpp>

#include "tasks/bell.hpp"

namespace amalgam {

void fifo_pool::push(work_unit& unit) noexcept {
    if (on_own_stream()) return push_own(unit);
    push_outside(unit);
}

// In the inbox it is marked by being its own predecessor, which no unit of a list is.
void fifo_pool::push_by_priority(work_unit& unit) noexcept {
    if (!on_own_stream()) {
        unit.prev_in_pool = &unit;
        // First, as the pool's life may end with the push. A look in between costs only time: the
        // unit then waits for the next, as any other does.
        unlooked_.store(0, std::memory_order_relaxed);
        return push_outside(unit);
    }
    own_.push_by_priority(unit);
    add_own_size(1);
}

void fifo_pool::push_outside(work_unit& unit) noexcept {
    // Read first: once the unit is visible it may run, and end, the life of this pool.
    detail::bell* const bell = pool::own_.bell.load(std::memory_order_relaxed);
    inbox_size_.fetch_add(1, std::memory_order_relaxed);
    work_unit* newest = inbox_.load(std::memory_order_relaxed);
    do {
        unit.next_in_pool = newest;
        // seq_cst: half of the handshake with a stream that goes to sleep, see bell.hpp.
    } while (!inbox_.compare_exchange_weak(newest, &unit, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
    // Who finds the inbox empty rings for all that come after, until it is taken.
    if (newest == nullptr && bell != nullptr) bell->ring();
}

void fifo_pool::drain_inbox() noexcept {
    unlooked_.store(most_unlooked, std::memory_order_relaxed);
    work_unit* newest = inbox_.exchange(nullptr, std::memory_order_acquire);
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
    if (inbox_.load(std::memory_order_relaxed) != nullptr) drain_inbox();
    if (!own_.holds(unit)) return false;
    own_.remove(unit);
    add_own_size(-1);
    return true;
}

bool fifo_pool::empty() const noexcept {
    return own_size_.load(std::memory_order_relaxed) == 0 &&
           inbox_.load(std::memory_order_seq_cst) == nullptr;
}

std::size_t fifo_pool::size() const noexcept {
    return own_size_.load(std::memory_order_relaxed) + inbox_size_.load(std::memory_order_relaxed);
}

}  // namespace amalgam
