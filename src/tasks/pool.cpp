#include <amalgam/tasks/pool.hpp>

#include "tasks/stream.hpp"

namespace amalgam {

bool pool::on_serving_stream() const noexcept {
    const detail::stream* const here = detail::stream::current();
    return here != nullptr && here == served_by_.load(std::memory_order_relaxed);
}

void pool::notify() noexcept {
    if (detail::bell* const bell = bell_.load(std::memory_order_relaxed)) bell->ring();
}

void fifo_pool::push(work_unit& unit) noexcept {
    if (on_serving_stream()) return push_own(unit);
    // Read first: once the unit is visible it may run, and end, the life of this pool.
    detail::bell* const bell = bell_.load(std::memory_order_relaxed);
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
    work_unit* newest = inbox_.exchange(nullptr, std::memory_order_acquire);
    work_unit* const last = newest;
    work_unit* first = nullptr;
    std::size_t count = 0;
    while (newest != nullptr) {
        work_unit* const older = newest->next_in_pool;
        newest->next_in_pool = first;
        first = newest;
        newest = older;
        ++count;
    }
    if (first == nullptr) return;
    (head_ == nullptr ? head_ : tail_->next_in_pool) = first;
    tail_ = last;
    inbox_size_.fetch_sub(count, std::memory_order_relaxed);
    add_own_size(static_cast<std::ptrdiff_t>(count));
}

bool fifo_pool::empty() const noexcept {
    return own_size_.load(std::memory_order_relaxed) == 0 &&
           inbox_.load(std::memory_order_seq_cst) == nullptr;
}

std::size_t fifo_pool::size() const noexcept {
    return own_size_.load(std::memory_order_relaxed) + inbox_size_.load(std::memory_order_relaxed);
}

}  // namespace amalgam
