#pragma once

#include <atomic>
#include <cstddef>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

/// A mutex that its owner may lock again; it is free after as many unlocks. The owner is a ULT, on
/// any thread, or a plain thread.
///
/// Threads: any. A coroutine or tasklet locks on behalf of its stream's thread, as a function
///          would, so it must unlock before its next co_await or its end; to hold a lock longer,
///          use a mutex. May be destroyed by the last to lock and unlock it.
/// Failure: lock() throws error{invalid} if it would have to wait inside a tasklet, timer callback
///          or poller.
/// Cost:    as mutex, plus a look-up of the running ULT.
class recursive_mutex {
public:
    using time_point = mutex::time_point;  ///< Of deadlines.

    void lock() {
        if (again()) return;
        guard_.lock();
        first(true);
    }
    /// As mutex::lock(lock_priority).
    void lock(lock_priority turn) {
        if (again()) return;
        guard_.lock(turn);
        first(true);
    }
    bool try_lock() noexcept { return again() || first(guard_.try_lock()); }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool try_lock_until(time_point deadline) {
        return again() || first(guard_.try_lock_until(deadline));
    }
    template <typename Rep, typename Period>
    bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        return again() || first(guard_.try_lock_for(time));
    }
    void unlock() noexcept {
        if (--depth_ != 0) return;
        owner_.store(nullptr, std::memory_order_relaxed);
        guard_.unlock();
    }
    /// As mutex::unlock_and_yield(), once it is free.
    bool unlock_and_yield() noexcept {
        if (--depth_ != 0) return false;
        owner_.store(nullptr, std::memory_order_relaxed);
        return guard_.unlock_and_yield();
    }

private:
    // The address of the running task's own slot identifies the task.
    static const void* self() noexcept { return &detail::task_local(); }

    bool again() noexcept {
        if (owner_.load(std::memory_order_relaxed) != self()) return false;
        ++depth_;
        return true;
    }
    bool first(bool locked) noexcept {
        if (!locked) return false;
        owner_.store(self(), std::memory_order_relaxed);
        depth_ = 1;
        return true;
    }

    mutex guard_;
    std::atomic<const void*> owner_{nullptr};  // equals self() only for the owner
    std::size_t depth_ = 0;                    // accessed only by the owner
};

}  // namespace amalgam
