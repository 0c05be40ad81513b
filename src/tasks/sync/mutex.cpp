#include <mutex>

#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

// False: acquired already.
bool mutex::enlist(detail::wait_node& me) noexcept {
    const std::lock_guard hold(waiting_);
    // From here on unlock() must visit the list, so it cannot miss us.
    if (state_.exchange(contended, std::memory_order_acquire) == unlocked) {
        state_.store(locked, std::memory_order_relaxed);  // waiters wait for an owner
        return false;
    }
    waiting_.push(me);
    return true;
}

bool mutex::lock_slow(time_point deadline) {
    detail::wait_node me;
    // hand_over() makes the waiter the owner.
    return !enlist(me) || waiting_.wait_unlocked_until(me, deadline, "mutex");
}

void mutex::hand_over() noexcept {
    std::uint32_t expected = locked;
    do {
        waiting_.lock();
        detail::wait_node* const next = waiting_.pop();
        if (waiting_.empty()) state_.store(locked, std::memory_order_relaxed);
        waiting_.unlock();
        if (next != nullptr) return next->who.unpark();
        // The waiters have given up. Only the very last step unlocks, with the list already
        // released: from then on another thread may lock this mutex, unlock it, and destroy it.
        expected = locked;
    } while (!state_.compare_exchange_strong(expected, unlocked, std::memory_order_release,
                                             std::memory_order_relaxed));
}

}  // namespace amalgam
