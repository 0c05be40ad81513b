#include <mutex>

#include <amalgam/tasks/mutex.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/mutex_wait.hpp"

namespace amalgam {

// False: acquired already.
bool mutex::enlist(detail::wait_node& me, lock_priority turn) noexcept {
    const std::lock_guard hold(waiting_);
    // From here on unlock() must visit the list, so it cannot miss us.
    if (state_.exchange(contended, std::memory_order_acquire) == unlocked) {
        state_.store(locked, std::memory_order_relaxed);  // waiters wait for an owner
        held_at_.store(detail::stack_page_at(&me), std::memory_order_relaxed);
        return false;
    }
    me.wants = static_cast<std::uintptr_t>(turn);
    waiting_.push_in_order(me);
    return true;
}

bool mutex::lock_slow(time_point deadline) {
    detail::mutex_wait me(*this);
    // hand_over() makes the waiter the owner.
    return !enlist(me) || waiting_.wait_unlocked_until(me, deadline, detail::mutex_wait::text);
}

void mutex::lock_in_turn(lock_priority turn) {
    detail::mutex_wait me(*this);
    if (enlist(me, turn))
        waiting_.wait_unlocked_until(me, time_point::max(), detail::mutex_wait::text);
}

// Null: unlocked, as nobody waits. Else the caller must unpark the one that owns it now.
[[gnu::always_inline]] inline detail::wait_node* mutex::next_owner() noexcept {
    std::uint32_t expected = locked;
    do {
        waiting_.lock();
        detail::wait_node* const next = waiting_.pop();
        if (waiting_.empty()) state_.store(locked, std::memory_order_relaxed);
        if (next != nullptr) held_at_.store(detail::stack_page_at(next), std::memory_order_relaxed);
        waiting_.unlock();
        if (next != nullptr) return next;
        // The waiters have given up. Only the very last step unlocks, with the list already
        // released: from then on another thread may lock this mutex, unlock it, and destroy it.
        expected = locked;
    } while (!state_.compare_exchange_strong(expected, unlocked, std::memory_order_release,
                                             std::memory_order_relaxed));
    return nullptr;
}

void mutex::hand_over() noexcept {
    if (detail::wait_node* const next = next_owner()) next->who.unpark();
}

bool mutex::unlock_and_yield() noexcept {
    std::uint32_t expected = locked;
    if (state_.compare_exchange_strong(expected, unlocked, std::memory_order_release,
                                       std::memory_order_relaxed)) {
        return false;
    }
    detail::wait_node* const next = next_owner();
    if (next == nullptr) return false;
    detail::dispatcher* const here = detail::dispatcher::current();
    if (here != nullptr) return here->unpark_and_leave_to(next->who);
    next->who.unpark();
    return false;
}

}  // namespace amalgam
