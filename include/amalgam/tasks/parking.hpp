#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace amalgam {

namespace detail {
class ult_core;
class stream;
}  // namespace detail

/// Parks the ULT or plain thread that made it until somebody unparks it: what every
/// wait in Amalgam is built on.
///
/// Holds at most one permit: unpark() before park() makes park() return at once, and
/// park() uses the permit up, so a waiter can be used again.
///
/// Owner:   usually on the stack of who waits. It may die as soon as park() returned:
///          unpark() does not touch it after the permit is given.
/// Threads: park() by the maker only; unpark() from any thread. Each unpark() must be
///          one that a park() will be, or is, waiting for, or come before the end of life.
/// Failure: made inside a tasklet, timer callback or poller it throws error{invalid}:
///          those run on the stream's own stack and cannot wait.
/// Cost:    parking a ULT is one switch; unparking one on its own stream is a pool
///          push; a plain thread looks for some 200 ns, then waits in the kernel.
class waiter {
public:
    using time_point = std::chrono::steady_clock::time_point;

    waiter();
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    /// Returns when there is a permit, and uses it up.
    void park() noexcept;
    /// The same, but no later than `deadline` (by the clock of the ULT's stream).
    /// False: the deadline passed and no permit was used; unpark() may still come.
    bool park_until(time_point deadline) noexcept;
    /// Gives the permit.
    void unpark() noexcept;

private:
    friend class detail::stream;
    enum : std::uint32_t { empty, permit, parked, expired };

    explicit waiter(detail::ult_core& ult) noexcept : ult_(&ult) {}
    void expire() noexcept;
    bool park_thread(const time_point* deadline) noexcept;
    bool commit() noexcept;

    detail::ult_core* ult_;  // null: a plain thread
    std::atomic<std::uint32_t> state_{empty};
};

}  // namespace amalgam
