#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/tasks/execution_stream.hpp>

namespace amalgam {

class pool;
namespace detail {
class sleep_operation;
class timer_heap;
}  // namespace detail

/// Calls a function on a stream at a given time, once per arm(). Intrusive: derive from it or embed
/// it; arming allocates nothing.
///
/// Owner:   the user. The destructor cancels. The stream must outlive the timer; once the stream is
///          stopped, the timer never fires. (Amalgam's own waits continue elsewhere: see
///          execution_stream::stop().)
/// Threads: one user at a time, on any thread.
/// Failure: none.
/// Cost:    arm() is constant; cancel() and firing are logarithmic in the number of armed timers.
class timer {
public:
    using time_point = execution_stream::time_point;  ///< By the clock of the stream.
    /// Runs on the stream's own stack: must not wait. May re-arm or destroy the timer.
    using callback = void (*)(timer&) noexcept;

    timer(execution_stream& where, callback on_time) noexcept;
    ~timer() { cancel(); }
    timer(const timer&) = delete;
    timer& operator=(const timer&) = delete;

    /// Arms the timer for `when` on the stream's clock; moves it if already armed. Timers due at
    /// the same instant fire in the order they were armed.
    void arm(time_point when) noexcept;
    /// True: the callback will not run. False: it was not armed, or has run. If the callback is
    /// running on the stream, waits for it to end (unless called from the callback itself).
    bool cancel() noexcept;

private:
    friend class detail::timer_heap;
    friend class detail::sleep_operation;
    friend class waiter;
    /// The pool in which it makes something ready; null: nobody waits for it any more.
    using pool_of = pool* (*)(const timer&) noexcept;
    /// Moves to another stream when its own stops.
    timer(detail::timer_heap& where, callback on_time, pool_of wakes_in) noexcept
        : heap_(&where), call_(on_time), wakes_in_(wakes_in) {}
    timer(execution_stream& where, callback on_time, pool_of wakes_in) noexcept;

    std::atomic<detail::timer_heap*> heap_;  // changed under the lock of the current heap
    callback call_;
    pool_of wakes_in_ = nullptr;  // null: it stays
    time_point when_{};
    std::uint64_t order_ = 0;
    // Pairing heap: first child, next sibling, and parent or previous sibling.
    timer* child_ = nullptr;
    timer* next_ = nullptr;
    timer* prev_ = nullptr;
    bool armed_ = false;
};

}  // namespace amalgam
