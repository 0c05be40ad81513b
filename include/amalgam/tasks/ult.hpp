#pragma once

#include <chrono>
#include <utility>

#include <amalgam/tasks/detail/closure.hpp>
#include <amalgam/tasks/detail/deadline.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult_options.hpp>

namespace amalgam {

class ult;

/// What the running ULT can do with itself. On a plain thread: the same with the thread.
namespace this_task {

/// True inside a ULT; false on a plain thread and inside a tasklet.
bool in_ult() noexcept;

/// Lets everything else that is ready run first. Throws error{invalid} in a tasklet.
void yield();

/// Switches straight to `next`, with no scheduler in between, while the caller yields. False:
/// `next` was not ready in a pool of this stream, and the caller just yielded.
bool yield_to(ult& next);

/// The running ULT goes on in pool `where`. Throws error{invalid} outside of ULTs, of pinned ones,
/// and when no stream serves that pool.
///
/// After this the ULT is on another thread, as after any wait in a pool that several streams serve.
/// What belongs to a thread then changes under it: `errno`, and each `thread_local`. Compilers do
/// not know that, and may keep the address of such an object in a register across the call: the
/// function then reads and writes that of the thread it left. So use no thread_local, and no errno,
/// on both sides of a wait in one function: ult_local is the ULT's own, last_error() reads errno
/// anew, and a ULT with ult_options::pinned stays where it is.
void migrate(pool& where);

/// errno of the thread that the caller is on now, and a way to set it: right after a wait or a
/// migration too, where a compiler may still use the errno of the thread before. A wait may change
/// it: read it before.
int last_error() noexcept;
void set_last_error(int number) noexcept;

/// Ends the running ULT here, unwinding its stack; join() sees a normal end. By an exception, so
/// `catch (...)` must throw it again. Throws error{invalid} outside of ULTs.
[[noreturn]] void exit();

/// The pool that the running ULT belongs to. Throws error{invalid} outside of ULTs.
pool& home();

/// Parks until `when`, by the clock of the ULT's stream. Throws error{invalid} in a tasklet.
void sleep_until(std::chrono::steady_clock::time_point when);
template <typename Rep, typename Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
    sleep_until(detail::deadline_after(time));
}

}  // namespace this_task

/// A user-level thread that somebody will join: runs on a stack of its own, and parks
/// instead of blocking its stream. What it sets by <cfenv>, as the rounding mode, stays with it;
/// what it sets of floating point by intrinsics alone ends at its next wait (on x86-64).
///
/// Owner:   owns the ULT's end: like std::jthread, the destructor joins.
/// Threads: one at a time. Dearest is to join one from another thread than the stream that made
///          it for itself, before it has ended: some microseconds.
/// Failure: join() rethrows what escaped from the ULT (the destructor logs it), and
///          throws error{invalid} when there is nothing to join, or the caller itself.
class ult {
public:
    ult() = default;
    /// What spawn() makes.
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
    /// Waits for the end: parks the calling ULT or thread.
    void join();
    /// Lets it run on alone; what escapes from it is logged.
    void detach();
    /// It goes on in pool `where`, from the next time it would run. Throws error{invalid} when no
    /// stream serves that pool, and when it is pinned.
    void migrate(pool& where);
    /// Asks it to end: the wait that it is in, or its next one, or its next yield, throws
    /// error{canceled} inside it, once; not begun, it never runs. What it makes of that is its own
    /// affair; uncaught, join() throws it. Waits that end soon by themselves are not canceled:
    /// locking a mutex, joining; nor are those of destructors that an exception runs, or the end of
    /// the ULT for its ult_local values: the request stays for a later wait. In any other
    /// destructor a wait may throw it, so one of yours that waits must catch it.
    void cancel();

private:
    friend bool this_task::yield_to(ult& next);
    explicit ult(detail::ult_core* core) noexcept : core_(core) {}
    void end() noexcept;
    void join_slowly();

    detail::ult_core* core_ = nullptr;
};

/// Makes a ULT that runs `body()` in pool `where`.
///
/// Failure: throws error{no_memory} without a stack, error{invalid} for a stack size
///          under 16 KiB, a pool that no stream serves, or one that several may serve for a pinned
///          ULT.
/// Cost:    no allocation in steady state: descriptor and closure are on the pooled stack.
template <typename Function>
ult spawn(pool& where, Function&& body, ult_options options = {}) {
    return ult(detail::launch(where, std::forward<Function>(body), options, true));
}
template <typename Function>
ult spawn(execution_stream& where, Function&& body, ult_options options = {}) {
    return spawn(where.main_pool(), std::forward<Function>(body), options);
}

/// From inside a ULT: in the pool that the caller belongs to.
template <typename Function>
ult spawn(Function&& body, ult_options options = {}) {
    return spawn(this_task::home(), std::forward<Function>(body), options);
}

/// The same without a handle; an exception that escapes from `body` is logged.
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
