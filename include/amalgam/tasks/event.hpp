#pragma once

#include <atomic>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

/// A one-time signal that releases all waiters; can be reset.
///
/// Threads: any; tasklets may set(). May be destroyed as soon as a wait() returns, even if set()
///          has not, provided nobody calls it any more and timed or canceled waits have returned.
/// Failure: wait() throws error{invalid} inside a tasklet, timer callback or poller.
class event {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    event() = default;
    event(const event&) = delete;
    event& operator=(const event&) = delete;

    /// Sets the event and releases all waiters. Earlier writes are visible to them.
    void set() noexcept;
    /// Makes the event unset again.
    void reset() noexcept { set_.store(false, std::memory_order_release); }
    bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }

    void wait();
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool wait_until(time_point deadline);
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return wait_until(detail::deadline_after(time));
    }
    /// For coroutines: `co_await e.start_wait();`
    auto start_wait() noexcept { return detail::wait_operation(*this); }

private:
    template <typename, typename...>
    friend class detail::wait_operation;
    bool enlist(detail::wait_node& me) noexcept;

    std::atomic<bool> set_{false};
    detail::wait_list waiting_;
};

}  // namespace amalgam
