#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include <amalgam/tasks/event.hpp>

namespace amalgam {

/// Counts down to zero, once: everybody who waits for it goes on then.
///
/// Threads: any; tasklets may count_down(). May be destroyed as soon as a wait() returned, even
///          when count_down() has not, if nobody else calls it any more; timed waits must have
///          returned.
/// Failure: count_down() by more than is left throws error{invalid} and counts nothing; wait()
///          throws it inside a tasklet, timer callback or poller.
/// Cost:    counting down is one atomic step; the last one wakes.
class latch {
public:
    using time_point = event::time_point;

    explicit latch(std::size_t count) noexcept;

    void count_down(std::size_t by = 1);
    bool try_wait() const noexcept { return open_.is_set(); }
    void wait() { open_.wait(); }
    /// False: the deadline passed first. Timed by the clock of the caller's stream.
    bool wait_until(time_point deadline) { return open_.wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return open_.wait_for(time);
    }
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
