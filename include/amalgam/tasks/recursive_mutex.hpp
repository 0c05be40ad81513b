#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include <amalgam/tasks/detail/local.hpp>
#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

/// A mutex that its owner may lock again; it is free when it was unlocked as often. The owner is
/// a ULT, wherever it runs, or a plain thread.
///
/// Threads: any. A coroutine or tasklet is to its stream's thread what a function is, so it must
///          unlock before its next co_await or its end: for longer, use a mutex. May be destroyed
///          by who has locked and unlocked it last.
/// Failure: lock() throws error{invalid} when it would have to wait inside a tasklet, timer
///          callback or poller.
/// Cost:    as mutex, and a look at who runs.
class recursive_mutex {
public:
    using time_point = mutex::time_point;

    void lock() {
        if (again()) return;
        guard_.lock();
        first(true);
    }
    bool try_lock() noexcept { return again() || first(guard_.try_lock()); }
    /// False: the deadline passed first. Timed by the clock of the caller's stream.
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

private:
    // The address of what belongs to the one who runs tells who that is.
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
    std::atomic<const void*> owner_{nullptr};  // only its owner finds itself there
    std::size_t depth_ = 0;                    // the owner's
};

}  // namespace amalgam
