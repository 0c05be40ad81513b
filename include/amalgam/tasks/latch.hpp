#pragma once

#include <atomic>
#include <cstddef>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/event.hpp>

namespace amalgam {

/// Counts down to zero once, then releases all waiters.
///
/// Threads: any; tasklets may count_down(). May be destroyed as soon as a wait() returns, even if
///          count_down() has not, provided nobody calls it any more and timed waits have returned.
/// Failure: count_down() by more than is left throws error{invalid} and counts nothing; wait()
///          throws it inside a tasklet, timer callback or poller.
/// Cost:    counting down is one atomic operation; the last one wakes the waiters.
class latch {
public:
    using time_point = event::time_point;  ///< Of deadlines.

    explicit latch(std::size_t count) noexcept;

    void count_down(std::size_t by = 1);
    bool try_wait() const noexcept { return open_.is_set(); }
    void wait() { open_.wait(); }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool wait_until(time_point deadline) { return open_.wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return open_.wait_for(time);
    }
    /// Counts down, then waits.
    void arrive_and_wait(std::size_t by = 1) {
        count_down(by);
        wait();
    }
    /// For coroutines: `co_await l.start_wait();`
    auto start_wait() noexcept { return open_.start_wait(); }

private:
    std::atomic<std::size_t> left_;
    event open_;
};

}  // namespace amalgam
