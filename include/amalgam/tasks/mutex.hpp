#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/stack_page.hpp>
#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

/// Whom unlock() serves first of those who wait for a mutex; equal ones in order of arrival.
enum class lock_priority : std::uint8_t {
    high,    ///< Before all others.
    normal,  ///< As lock() without a priority.
    low      ///< When nobody else waits.
};

/// Mutual exclusion between ULTs, plain threads and coroutines, in any mix. Waiting parks the
/// caller. Fair: unlock() hands the mutex to the longest waiter, so a ULT that yields while holding
/// it starves nobody.
///
///     const std::lock_guard hold(accounts);          // in a ULT or thread
///     co_await accounts.start_lock();                // in a coroutine, then
///     const std::lock_guard hold(accounts, std::adopt_lock);
///
/// Threads: any. The locker must unlock it; a coroutine may do so on whichever thread it runs by
///          then. Not recursive. May be destroyed by the last to lock and unlock it, even if the
///          previous unlock() has not returned.
/// Failure: lock() throws error{invalid} if it would have to wait inside a tasklet, timer callback
///          or poller; use try_lock() there.
/// Cost:    uncontended, one atomic exchange each to lock and unlock.
class mutex {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    mutex() = default;
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    void lock() {
        if (!try_lock()) lock_slow(time_point::max());
    }
    /// Waits before all of a lower priority, who may so wait for ever.
    void lock(lock_priority turn) {
        if (!try_lock()) lock_in_turn(turn);
    }
    bool try_lock() noexcept {
        std::uint32_t expected = unlocked;
        if (!state_.compare_exchange_strong(expected, locked, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
            return false;
        }
        held_at_.store(detail::stack_page(), std::memory_order_relaxed);
        return true;
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool try_lock_until(time_point deadline) { return try_lock() || lock_slow(deadline); }
    template <typename Rep, typename Period>
    bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        return try_lock() || lock_slow(detail::deadline_after(time));
    }
    /// For coroutines: `co_await m.start_lock();`, then unlock() as usual.
    auto start_lock() noexcept { return detail::wait_operation(*this); }

    void unlock() noexcept {
        std::uint32_t expected = locked;
        if (!state_.compare_exchange_strong(expected, unlocked, std::memory_order_release,
                                            std::memory_order_relaxed)) {
            hand_over();
        }
    }
    /// Unlocks, and if that hands the mutex to a ULT that waits in a pool of this stream, yields
    /// straight to it: true. Else this is unlock(). Does not throw if the caller is canceled; its
    /// next wait or yield does.
    bool unlock_and_yield() noexcept;

private:
    friend class condition_variable;
    friend class detail::ult_registry;  // shows who holds it
    template <typename, typename...>
    friend class detail::wait_operation;

    // locked: the list is empty. contended: it may not be, or only briefly.
    enum : std::uint32_t { unlocked, locked, contended };
    bool lock_slow(time_point deadline);
    void lock_in_turn(lock_priority turn);
    bool enlist(detail::wait_node& me, lock_priority turn = lock_priority::normal) noexcept;
    void hand_over() noexcept;
    detail::wait_node* next_owner() noexcept;

    std::atomic<std::uint32_t> state_{unlocked};
    // Where the stack of the last to lock it is, for list_ults(): see detail::stack_page(). In what
    // would be padding.
    std::atomic<std::uint32_t> held_at_{0};
    detail::wait_list waiting_;
};

}  // namespace amalgam
