#pragma once

#include <cstddef>
#include <mutex>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

/// A number of permits, acquired and released by ULTs, plain threads and coroutines. Fair: the
/// longest waiter is served first, even if it asks for many permits and those behind it for few.
///
/// Threads: any; tasklets may release() and try_acquire(). May be destroyed as soon as the last
///          acquire() returns, even if the release() that let it through has not; timed waits must
///          have returned.
/// Failure: acquire() throws error{invalid} if it would have to wait inside a tasklet, timer
///          callback or poller.
/// Cost:    a short lock per call.
class semaphore {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    explicit semaphore(std::size_t permits) noexcept : permits_(permits) {}
    semaphore(const semaphore&) = delete;
    semaphore& operator=(const semaphore&) = delete;

    void acquire(std::size_t permits = 1) {
        if (!try_acquire(permits)) acquire_slow(permits, time_point::max());
    }
    /// False: too few permits, or others are already waiting.
    bool try_acquire(std::size_t permits = 1) noexcept {
        const std::lock_guard hold(waiting_);
        return take(permits);
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool try_acquire_until(time_point deadline, std::size_t permits = 1) {
        return try_acquire(permits) || acquire_slow(permits, deadline);
    }
    template <typename Rep, typename Period>
    bool try_acquire_for(std::chrono::duration<Rep, Period> time, std::size_t permits = 1) {
        return try_acquire(permits) || acquire_slow(permits, detail::deadline_after(time));
    }
    /// For coroutines: `co_await s.start_acquire();`
    auto start_acquire(std::size_t permits = 1) noexcept {
        return detail::wait_operation(*this, permits);
    }

    void release(std::size_t permits = 1) noexcept;
    /// Number of permits left; may be outdated if others acquire and release.
    std::size_t available() const noexcept;

private:
    template <typename, typename...>
    friend class detail::wait_operation;
    bool enlist(detail::wait_node& me, std::size_t permits) noexcept;
    bool acquire_slow(std::size_t permits, time_point deadline);

    // Needs the list's lock.
    bool take(std::size_t permits) noexcept {
        if (permits_ < permits || !waiting_.empty()) return false;
        permits_ -= permits;
        return true;
    }
    detail::wait_node* serve() noexcept;

    mutable detail::wait_list waiting_;
    std::size_t permits_;
};

}  // namespace amalgam
