#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/scheduler.hpp>

namespace amalgam {

/// Spin for as long as it has paid off lately, at most 50 us, then sleep.
inline constexpr std::chrono::nanoseconds adaptive_spin{-1};
/// Never sleep: lowest latency, one core at 100 %.
inline constexpr std::chrono::nanoseconds always_spin = std::chrono::nanoseconds::max();

/// How a stream is set up. Every field has a usable default.
struct execution_stream_options {
    std::string name = "stream";  ///< Shown by the OS (first 15 characters) and in logs.
    int cpu = -1;                 ///< The core to bind to; -1: any.
    std::chrono::nanoseconds spin = adaptive_spin;  ///< Polling time before an idle stream sleeps.
    /// What the stream's timers go by; null: the steady clock. Must outlive the stream.
    const amalgam::clock* clock = nullptr;
    /// True: no thread; the stream runs only inside run_ready(), on the caller's thread.
    bool driven = false;
    /// Of a driven stream: it has a wait_handle(), for a caller who sleeps between two run_ready().
    /// Goes by the steady clock only.
    bool wakeable = false;
    /// True: no thread of its own. The thread that makes the stream becomes one of its ULTs, until
    /// stop(): what it waits for parks it, and the others run meanwhile. It stays on its thread.
    bool primary = false;
};

class timer;

/// Runs work from pools as its scheduler orders: an OS thread, or, when driven, the
/// caller of run_ready(). Idle, it polls for a moment and then sleeps: no CPU is used.
///
/// Owner:   owns its thread, timers and main pool; stop() first, or the destructor does, which
///          waits for all that is ready.
///          A child of fork() has none of its parent's streams: what they would run there, and to
///          join what they have not ended, throws error{closed}, stop() and the destructor do
///          nothing, and exit() does not wait for them. Where the parent was in a ULT, the child is
///          on a plain thread. One that was forked by what a stream ran (a ULT, tasklet, callback,
///          scheduler or pool) must exec() or _exit() before that returns: else it is ended there,
///          with a sentence on standard error and 1 as its exit code. New streams in the child are
///          like any other.
///          A ULT of the main pool that is still parked when the stream stops runs again only when
///          another stream serves that pool. What is left in the stream's own pool when it is
///          destroyed is told of in the log, and canceled: see pool.
///          Destroyed by its own work, as where a ULT calls exit() and the stream is static, it
///          stays until the process ends, and a line in the log says so.
/// Threads: any, unless a member says otherwise. A driven stream has one driving
///          thread at a time, and must not be stopped by another.
/// Failure: throws error{invalid} for a core that does not exist or a pool that another
///          stream serves, error{no_memory} when the OS gives no thread or descriptor.
///          A ULT that overflows its stack ends the process: the first stream installs a
///          handler of SIGSEGV that says so, and leaves other faults to the handler before it.
class execution_stream {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Starts a stream that serves its own main_pool().
    explicit execution_stream(execution_stream_options options = {});
    /// Starts a stream that runs what `order` chooses; its first pool is main_pool().
    execution_stream(std::unique_ptr<scheduler> order, execution_stream_options options = {});
    ~execution_stream();
    execution_stream(const execution_stream&) = delete;
    execution_stream& operator=(const execution_stream&) = delete;

    /// The stream that runs the caller, or null on a plain thread.
    static execution_stream* current() noexcept;

    /// Where spawn(stream, …) puts ULTs.
    pool& main_pool() noexcept;
    std::string_view name() const noexcept;
    bool driven() const noexcept;

    /// Changes what the stream runs by, from now on, while it runs; its stacked schedulers go on.
    /// Parks the caller until it is done. Throws error{invalid}, and changes nothing, when a pool
    /// that only this stream served still has ULTs and is not among the new scheduler's, or
    /// another stream serves one of those.
    void set_scheduler(std::unique_ptr<scheduler> order);

    /// What time it is for this stream's timers.
    time_point now() const noexcept;
    /// When the earliest armed timer is due, or nothing.
    std::optional<time_point> next_timer() const noexcept;

    /// The stream polls `what` from soon on. Throws error{invalid} when its wait
    /// handle cannot be waited on.
    void add_poller(poller& what);
    /// Returns once the stream does not, and will not, touch `what`. Waits for the
    /// unit that the stream runs now, when called from another stream or thread.
    void remove_poller(poller& what);

    /// Makes the stream poll again now, also when it sleeps. Cost: one load when awake.
    void wake() noexcept;

    /// Driven streams only (else throws error{invalid}): runs due timers, pollers and
    /// ready units until nothing more is ready or `most` things happened; returns how
    /// many did. Not from inside the same stream.
    std::size_t run_ready(std::size_t most = std::numeric_limits<std::size_t>::max());

    /// Wakeable streams only (else throws error{invalid}): a descriptor that is readable when
    /// run_ready() would do something, whoever brought that about, and now and then for nothing.
    /// Watch it with epoll or poll; do not read it. Quiet once the stream is stopped.
    int wait_handle() const;

    /// Polling time before an idle stream sleeps, from now on, as in execution_stream_options.
    void set_spin(std::chrono::nanoseconds time) noexcept;

    /// Finishes the work that is ready, of all its schedulers, and ends the thread; idempotent.
    /// Waits for that without a limit (stop_within() has one), so work that stays ready for ever
    /// keeps it; parks a ULT that calls it. What is ready in a pool that another stream with a
    /// thread serves is left to that one. Not from the stream itself (throws error{invalid}).
    ///
    /// Streams come and go at run time: timed waits that began on this one end on another, one that
    /// serves the ULT's pool or else any that has a thread; while there is none, on the next that
    /// is made. Times are then by the clock of that stream. A post_scheduler() that was not done
    /// fails with error{closed}.
    void stop();
    /// The same, but work that is still ready after `limit` is left. False: some was. Work that
    /// neither ends, waits nor yields is waited for all the same.
    bool stop_within(std::chrono::nanoseconds limit);

    /// CPU time that the stream's thread has used; zero when driven or stopped.
    std::chrono::nanoseconds cpu_time() const noexcept;

private:
    friend class timer;
    std::unique_ptr<detail::stream> impl_;
};

}  // namespace amalgam
