#pragma once

#include <utility>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult_options.hpp>
#include <amalgam/tasks/ult_ref.hpp>

namespace amalgam {

class ult;

namespace detail {
ult_core* core_of(const ult& of) noexcept;
}  // namespace detail

/// Operations on the running ULT. On a plain thread they act on the thread.
namespace this_task {

/// True inside a ULT; false on a plain thread or inside a tasklet.
bool in_ult() noexcept;

/// Lets everything else that is ready run first. Throws error{invalid} in a tasklet.
void yield();

/// Yields by switching straight to `next`, bypassing the scheduler. False: `next` was not ready in
/// a pool of this stream, so this was a plain yield.
bool yield_to(ult& next);

/// Moves the running ULT to pool `where`. Throws error{invalid} outside a ULT, for a pinned ULT, or
/// if no stream serves `where`.
///
/// The ULT then runs on another thread, as it may after any wait in a pool served by several
/// streams. Thread state changes with it: `errno` and every `thread_local`. Compilers do not expect
/// this. They may keep the address of a thread_local in a register across the call, so the function
/// accesses the old thread's copy. Therefore no function may use a thread_local or errno both
/// before and after a wait. Use ult_local for per-ULT data and last_error() to read errno afresh,
/// or set ult_options::pinned to stay on one thread.
void migrate(pool& where);
inline void migrate(execution_stream& where) {
    migrate(where.main_pool());
}

/// The same, to another stream, as ult::migrate().
void migrate();

/// Get and set errno of the current thread. Correct even right after a wait or migration, when a
/// compiler may still use the old thread's errno. A wait may change errno: read it before waiting.
int last_error() noexcept;
void set_last_error(int number) noexcept;

/// Ends the running ULT and unwinds its stack; join() sees a normal end. Implemented as an
/// exception, so `catch (...)` must rethrow it. Throws error{invalid} outside a ULT.
[[noreturn]] void exit();

/// The pool the running ULT belongs to. Throws error{invalid} outside a ULT.
pool& home();

/// Parks until `when` on the clock of the ULT's stream. Throws error{invalid} in a tasklet.
void sleep_until(std::chrono::steady_clock::time_point when);
template <typename Rep, typename Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
    sleep_until(detail::deadline_after(time));
}

}  // namespace this_task

/// A joinable user-level thread: runs on its own stack and parks instead of blocking its stream.
/// State set through `<cfenv>`, such as the rounding mode, stays with the ULT. Floating-point
/// control set by intrinsics alone lasts only until its next wait (on x86-64).
///
/// Owner:   owns the ULT until it is joined; like std::jthread, the destructor joins.
/// Threads: one at a time. Joining costs some microseconds if the ULT is unfinished, was created by
///          a stream in its own pool, and is joined from another thread.
/// Failure: join() rethrows an exception that escaped from the ULT (the destructor logs it). It
///          throws error{invalid} if there is nothing to join or the ULT joins itself.
class ult {
public:
    ult() = default;
    /// Used by spawn().
    explicit ult(detail::ult_core& core) noexcept : core_(&core) {}
    ult(ult&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    ult& operator=(ult&& other) noexcept {
        ult ended(std::exchange(core_, std::exchange(other.core_, nullptr)));
        return *this;
    }
    ~ult() {
        if (core_ != nullptr) end();
    }

    bool joinable() const noexcept { return core_ != nullptr; }
    /// Waits for the end; parks the calling ULT or thread.
    void join();
    /// Lets it run unjoined; an escaping exception is logged.
    void detach();
    /// Moves it to pool `where`, from the next time it would run. Throws error{invalid} if no
    /// stream serves that pool, or if the ULT is pinned.
    void migrate(pool& where);
    void migrate(execution_stream& where) { migrate(where.main_pool()); }
    /// The same, to the main pool of another stream than those that serve it now: the one with the
    /// fewest ULTs, of those that have a thread and are not about to stop. Throws error{invalid} if
    /// there is none.
    void migrate();
    /// `tell()` runs each time after the ULT was moved by a migrate(), before it runs in its new
    /// pool. It runs there like a tasklet: it must not wait, and what it throws is logged. Empty:
    /// no more. Throws std::bad_alloc.
    void on_migrate(std::function<void()> tell);
    /// Asks the ULT to end. Its current wait, or else its next wait or yield, throws
    /// error{canceled} inside it, once. If it has not started, it never runs. The ULT may catch the
    /// error; if uncaught, join() throws it. Not canceled: waits that end soon on their own
    /// (locking a mutex, joining), waits in destructors run by an exception, and waits in
    /// destructors of ult_local values at the ULT's end. The request then stays for a later wait.
    /// In any other destructor a wait may throw, so a destructor of yours that waits must catch it.
    void cancel();

    /// Joins it if it has ended, and rethrows as join(). False: it has not.
    bool try_join();
    /// Joins it, unless `deadline` passes first: false. Uses the clock of the caller's stream.
    /// Unlike join(), it can be canceled.
    bool join_until(std::chrono::steady_clock::time_point deadline);
    template <typename Rep, typename Period>
    bool join_for(std::chrono::duration<Rep, Period> time) {
        return join_until(detail::deadline_after(time));
    }
    /// Waits for the end as join() does, but keeps the handle; an escaped exception stays in it.
    void wait();

    /// Runs `body()` in pool `where` as the same ULT, which has ended (see wait()): with its
    /// handle, names, id, stack, name, priority and pin. An exception that its last body left is
    /// logged.
    ///
    /// Failure: throws error{invalid} unless it has ended, if its pool was destroyed, and as
    ///          spawn(). Nothing has changed then.
    /// Cost:    as spawn().
    template <typename Function>
    void revive(pool& where, Function&& body) {
        detail::relaunch(core_, where, std::forward<Function>(body));
    }
    template <typename Function>
    void revive(execution_stream& where, Function&& body) {
        revive(where.main_pool(), std::forward<Function>(body));
    }

    /// Its number, unique in the process and never 0. Throws std::bad_alloc on first use.
    std::uint64_t id() const;
    /// What it is doing; another thread may have changed that by now. `ended` for an empty handle.
    /// Cost: a system call once it has begun, until it has ended.
    ult_state state() const noexcept;
    /// Names it for others; the name outlives it. Throws std::bad_alloc on first use.
    ult_ref ref() const;
    /// Ends its this_task::suspend(). False: it is not suspended; its next suspend() then returns
    /// at once. Has no effect once it has ended. Throws std::bad_alloc on first use.
    bool resume();
    /// The pool it belongs to; null once it has ended.
    pool* home() const noexcept;
    /// Usable bytes of its stack; 0 for an empty handle.
    std::size_t stack_bytes() const noexcept;

private:
    friend bool this_task::yield_to(ult& next);
    friend detail::ult_core* detail::core_of(const ult& of) noexcept;
    explicit ult(detail::ult_core* core) noexcept : core_(core) {}
    void end() noexcept;
    void join_slowly();

    detail::ult_core* core_ = nullptr;
};

inline detail::ult_core* detail::core_of(const ult& of) noexcept {
    return of.core_;
}

/// Creates a ULT that runs `body()` in pool `where`.
///
/// Failure: throws error{no_memory} if there is no stack; error{invalid} for a stack size under 16
///          KiB, for a pool that no stream serves, or for a pinned ULT in a pool that several
///          streams may serve.
/// Cost:    no allocation in steady state: descriptor and closure are on the pooled stack.
template <typename Function>
ult spawn(pool& where, Function&& body, ult_options options = {}) {
    return ult(detail::launch(where, std::forward<Function>(body), options, true));
}
template <typename Function>
ult spawn(execution_stream& where, Function&& body, ult_options options = {}) {
    return spawn(where.main_pool(), std::forward<Function>(body), options);
}

/// From inside a ULT: creates it in the caller's pool.
template <typename Function>
ult spawn(Function&& body, ult_options options = {}) {
    return spawn(this_task::home(), std::forward<Function>(body), options);
}

/// As spawn(), without a handle; an exception that escapes from `body` is logged.
template <typename Function>
void post(pool& where, Function&& body, ult_options options = {}) {
    detail::launch(where, std::forward<Function>(body), options, false);
}
template <typename Function>
void post(execution_stream& where, Function&& body, ult_options options = {}) {
    post(where.main_pool(), std::forward<Function>(body), options);
}

template <typename Function>
void post(Function&& body, ult_options options = {}) {
    post(this_task::home(), std::forward<Function>(body), options);
}

}  // namespace amalgam
