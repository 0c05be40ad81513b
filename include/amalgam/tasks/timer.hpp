#pragma once

#include <cstdint>

#include <amalgam/tasks/execution_stream.hpp>

namespace amalgam {

namespace detail {
class timer_heap;
}

/// Calls a function on a stream at a given time, once per arm(). Intrusive: derive
/// from it or embed it; arming allocates nothing.
///
/// Owner:   the user. The destructor cancels. The stream must outlive it.
/// Threads: one user at a time, on any thread.
/// Failure: none.
/// Cost:    arm() is constant, cancel() and firing are logarithmic in the armed timers.
class timer {
public:
    using time_point = execution_stream::time_point;
    /// Runs on the stream, on its own stack: must not wait. It may arm the timer again
    /// or destroy it.
    using callback = void (*)(timer&) noexcept;

    timer(execution_stream& where, callback on_time) noexcept;
    ~timer() { cancel(); }
    timer(const timer&) = delete;
    timer& operator=(const timer&) = delete;

    /// Due at `when` on the stream's clock; an armed timer is moved. Timers of one
    /// instant fire in the order they were armed.
    void arm(time_point when) noexcept;
    /// True: the callback will not run. False: it was not armed, or it has run; when
    /// it runs right now on the stream, cancel() waits for its end (unless called by
    /// the callback itself).
    bool cancel() noexcept;

private:
    friend class detail::timer_heap;
    friend class detail::stream;
    friend class waiter;
    timer(detail::stream& where, callback on_time) noexcept : where_(&where), call_(on_time) {}

    detail::stream* where_;
    callback call_;
    time_point when_{};
    std::uint64_t order_ = 0;
    // Pairing heap: first child, next sibling, and parent or previous sibling.
    timer* child_ = nullptr;
    timer* next_ = nullptr;
    timer* prev_ = nullptr;
    bool armed_ = false;
};

}  // namespace amalgam
