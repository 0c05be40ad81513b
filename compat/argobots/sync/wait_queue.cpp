#include "sync/wait_queue.hpp"

#include <amalgam/tasks/extension/cpu_relax.hpp>

namespace amalgam::argobots {

/// Returns the other bits.
std::uint32_t open_mutex::become_busy() noexcept {
    for (;;) {
        std::uint32_t seen = state_.load(std::memory_order_relaxed) & ~std::uint32_t{busy};
        if (state_.compare_exchange_weak(seen, seen | busy, std::memory_order_acquire,
                                         std::memory_order_relaxed))
            return seen;
        detail::cpu_relax();
    }
}

bool open_mutex::try_lock() noexcept {
    std::uint32_t seen = 0;
    while (!state_.compare_exchange_weak(seen, seen | locked, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
        if ((seen & locked) != 0) return false;
        if ((seen & busy) != 0) seen &= ~std::uint32_t{busy};
    }
    return true;
}

void open_mutex::lock(awaited what) {
    if (try_lock()) return;
    blocked while_waiting(what);
    for (;;) {
        queued me;
        me.who.waits_for("mutex");
        const std::uint32_t seen = become_busy();
        if ((seen & locked) == 0) {
            state_.store(seen | locked, std::memory_order_release);
            return;
        }
        waiting_.push(me);
        state_.store(locked | waited_for, std::memory_order_release);
        me.who.park();
        if (try_lock()) return;
        while_waiting.again();
    }
}

void open_mutex::unlock() noexcept {
    std::uint32_t seen = locked;
    if (state_.compare_exchange_strong(seen, 0, std::memory_order_release,
                                       std::memory_order_relaxed))
        return;
    become_busy();
    queued* const next = waiting_.pop();
    const bool more = !waiting_.empty();
    state_.store(more ? std::uint32_t{waited_for} : 0, std::memory_order_release);
    if (next != nullptr) next->who.unpark();
}

}  // namespace amalgam::argobots
