#pragma once

#include <condition_variable>
#include <mutex>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

/// Waits, with an amalgam::mutex, for a notification from another ULT, thread or coroutine. Works
/// like std::condition_variable, but without spurious wake-ups; waiters wake in order of arrival.
///
/// Threads: any. May be destroyed once all waiters have been notified, even before they return from
///          wait(); timed or canceled waits must have returned.
/// Failure: wait() throws error{invalid} inside a tasklet, timer callback or poller, and if the
///          mutex is not locked.
class condition_variable {
    using coroutine_wait = detail::wait_operation<condition_variable, std::unique_lock<mutex>*>;

public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    condition_variable() = default;
    condition_variable(const condition_variable&) = delete;
    condition_variable& operator=(const condition_variable&) = delete;

    /// Wakes one waiter, or all; the mutex need not be held.
    void notify_one() noexcept;
    void notify_all() noexcept;

    void wait(std::unique_lock<mutex>& lock);
    template <typename Predicate>
    void wait(std::unique_lock<mutex>& lock, Predicate ready) {
        while (!ready())
            wait(lock);
    }

    /// Uses the clock of the caller's stream.
    std::cv_status wait_until(std::unique_lock<mutex>& lock, time_point deadline);
    template <typename Predicate>
    bool wait_until(std::unique_lock<mutex>& lock, time_point deadline, Predicate ready) {
        while (!ready()) {
            if (wait_until(lock, deadline) == std::cv_status::timeout) return ready();
        }
        return true;
    }
    template <typename Rep, typename Period>
    std::cv_status wait_for(std::unique_lock<mutex>& lock,
                            std::chrono::duration<Rep, Period> time) {
        return wait_until(lock, detail::deadline_after(time));
    }
    template <typename Rep, typename Period, typename Predicate>
    bool wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> time,
                  Predicate ready) {
        return wait_until(lock, detail::deadline_after(time), std::move(ready));
    }

    /// For coroutines: `while (!ready) co_await c.start_wait(lock);`
    auto start_wait(std::unique_lock<mutex>& lock) {
        check_locked(lock);
        return notice(*this, lock);
    }

private:
    /// Resumed with the mutex locked.
    class [[nodiscard]] notice : public coroutine_wait {
    public:
        notice(condition_variable& what, std::unique_lock<mutex>& lock) noexcept
            : coroutine_wait(what, &lock), lock_(lock) {}
        void await_resume() noexcept { lock_ = {*lock_.mutex(), std::adopt_lock}; }

    private:
        std::unique_lock<mutex>& lock_;
    };

    template <typename, typename...>
    friend class detail::wait_operation;
    bool enlist(detail::wait_node& me, std::unique_lock<mutex>* lock) noexcept;
    static void check_locked(const std::unique_lock<mutex>& lock);
    static void notify(detail::wait_node& who) noexcept;

    detail::wait_list waiting_;
};

}  // namespace amalgam
