#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace amalgam {

class work_unit;
class ult;
namespace detail {
class left_behind;
class stream;
class ult_registry;
class wait_list;
class ult_core;
void cancel_ult(ult_core& core) noexcept;
}  // namespace detail

/// Parks the ULT or plain thread that made it, or a coroutine, until somebody unparks it: what
/// every wait in Amalgam is built on.
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
    /// For a suspended coroutine: `unit` resumes it, on its home pool or, without one, on the
    /// thread that unparks.
    explicit waiter(work_unit& unit) noexcept : unit_(&unit) {}
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    /// Returns when there is a permit, and uses it up.
    void park() noexcept;
    /// The same, but no later than `deadline` (by the clock of the ULT's stream).
    /// False: the deadline passed and no permit was used; unpark() may still come.
    bool park_until(time_point deadline) noexcept;
    /// The same for who will be unparked once and no more: the permit stays there, unused, which
    /// saves an atomic exchange.
    bool park_once_until(time_point deadline) noexcept;
    /// From now on ult::cancel() ends a park as a deadline does.
    void allow_cancel() noexcept { cancelable_ = true; }
    /// For list_ults(): what the owner waits for, in a word, as "mutex". A literal: it is not
    /// copied.
    void waits_for(const char* what) noexcept { what_ = what; }
    /// Gives the permit.
    void unpark() noexcept;
    /// In place of park(), for coroutines. False: there is a permit already, the unit will not
    /// run. True: another thread may have resumed the coroutine by now.
    bool park_unit() noexcept { return commit(); }

private:
    friend class detail::left_behind;
    friend class detail::stream;
    friend class detail::ult_registry;
    friend class detail::wait_list;
    friend void detail::cancel_ult(detail::ult_core& core) noexcept;
    enum : std::uint32_t { empty, permit, parked, expired };

    void expire() noexcept;
    void wait_unit(time_point deadline) noexcept;
    void wait_unit_until(time_point deadline) noexcept;
    bool park_thread(const time_point* deadline) noexcept;
    bool commit() noexcept;

    work_unit* unit_;  // a ULT or coroutine; null: a plain thread
    std::atomic<std::uint32_t> state_{empty};
    bool cancelable_ = false;
    const char* what_ = "permit";
};

namespace detail {

/// Throws error{canceled} when the running ULT was canceled, once for each ult::cancel(). Not while
/// an exception unwinds its stack or a cancel_later lives: then a cancel stays for a later wait.
void throw_if_canceled();

class ult_core;

/// While it lives no wait of the ULT that made it is canceled: for destructors that wait, and
/// whatever else must not throw. On a plain thread it does nothing.
class cancel_later {
public:
    cancel_later() noexcept;
    ~cancel_later();
    cancel_later(const cancel_later&) = delete;
    cancel_later& operator=(const cancel_later&) = delete;

private:
    ult_core* who_;
};

}  // namespace detail

}  // namespace amalgam
