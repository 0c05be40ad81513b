#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/core/detail/chrono.hpp>

namespace amalgam {

class work_unit;
class ult;
namespace detail {
class dispatcher;
class left_behind;
class switcher;
class ult_registry;
class ult_core;
void cancel_ult(ult_core& core) noexcept;
}  // namespace detail

/// Parks a ULT, plain thread or coroutine until it is unparked. Every wait in Amalgam is built on
/// this.
///
/// Holds at most one permit. An unpark() before park() makes park() return at once. park() consumes
/// the permit, so a waiter can be reused.
///
/// Owner:   usually on the stack of the waiting code. May be destroyed as soon as park() returns:
///          unpark() does not touch it after giving the permit.
/// Threads: park() only by the creator; unpark() from any thread. Each unpark() must match a
///          current or future park(), or come before the waiter is destroyed.
/// Failure: creating one inside a tasklet, timer callback or poller throws error{invalid}: those
///          run on the stream's own stack and cannot wait.
/// Cost:    parking a ULT is one switch; unparking one on its own stream is a pool push. A plain
///          thread spins for about 200 ns, then waits in the kernel.
class waiter {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    waiter();
    /// For a suspended coroutine: `unit` resumes it, in its home pool or, if it has none, on the
    /// unparking stream or thread.
    explicit waiter(work_unit& unit) noexcept : unit_(&unit) {}
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    /// Waits for a permit and consumes it.
    void park() noexcept;
    /// The same, until `deadline` (on the clock of the ULT's stream). False: the deadline passed
    /// and no permit was consumed; unpark() may still come.
    bool park_until(time_point deadline) noexcept;
    /// The same for a waiter that is unparked only once: leaves the permit in place, which saves an
    /// atomic exchange.
    bool park_once_until(time_point deadline) noexcept;
    /// From now on ult::cancel() ends a park the way a deadline does.
    void allow_cancel() noexcept { cancelable_ = true; }
    /// For list_ults(): what the owner waits for, such as "mutex". Must be a literal: it is not
    /// copied.
    void waits_for(const char* what) noexcept { what_ = what; }
    /// Whether a ULT or coroutine waits, rather than a plain thread.
    bool parks_unit() const noexcept { return unit_ != nullptr; }
    /// Gives the permit.
    void unpark() noexcept;
    /// Replaces park() for coroutines. False: there already is a permit, and the unit will not run.
    /// True: another thread may already have resumed the coroutine.
    bool park_unit() noexcept { return commit(); }

private:
    friend class detail::switcher;      // parks the ULT once its context is saved
    friend class detail::dispatcher;    // joins without an exchange
    friend class detail::left_behind;   // takes the permit of what never runs again
    friend class detail::ult_registry;  // shows what is waited for
    friend void detail::cancel_ult(detail::ult_core& core) noexcept;  // expires it
    enum : std::uint32_t { empty, permit, parked, expired };

    void expire() noexcept;
    /// As unpark(), but the caller must make what it returns ready, or run it. Null: nothing.
    work_unit* unpark_only() noexcept;
    /// expire() in two steps: what the first returns, unless null, is for the second. A caller with
    /// an ult_registry::hold ends it in between, as a stream that finds the ULT ready but held puts
    /// it behind all others.
    work_unit* expire_only() noexcept;
    static void push_expired(work_unit& unit) noexcept;
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

/// Throws error{canceled} if the running ULT was canceled, once per ult::cancel(). Does not throw
/// while an exception unwinds the stack or a cancel_later lives: the cancel then stays for a later
/// wait.
void throw_if_canceled();

class ult_core;

/// While it lives, no wait of the ULT that created it is canceled. For destructors that wait, and
/// other code that must not throw. No effect on a plain thread.
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
