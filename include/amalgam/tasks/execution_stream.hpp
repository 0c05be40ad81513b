#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/tasks/cpu_set.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

namespace detail {
class stream;
struct stream_access;
}  // namespace detail

/// Adaptive: spin while spinning has paid off lately, at most 50 us, then sleep.
inline constexpr std::chrono::nanoseconds adaptive_spin{-1};
/// Never sleep: lowest latency, one core at 100 %.
inline constexpr std::chrono::nanoseconds always_spin = std::chrono::nanoseconds::max();

/// Options of a stream. Every field has a usable default.
struct execution_stream_options {
    std::string name = "stream";  ///< Shown by the OS (first 15 characters) and in logs.
    int cpu = -1;                 ///< Core to bind to; -1: any. Not for driven streams, as `cpus`.
    std::chrono::nanoseconds spin = adaptive_spin;  ///< Polling time before an idle stream sleeps.
    /// Clock of the stream's timers; null: the steady clock. Must outlive the stream.
    const amalgam::clock* clock = nullptr;
    /// True: no thread; runs only inside run_ready(), on the caller's thread.
    bool driven = false;
    /// Driven streams only: gives it a wait_handle(), for callers that sleep between run_ready()
    /// calls. Requires the steady clock.
    bool wakeable = false;
    /// True: no thread of its own. The creating thread becomes one of the stream's ULTs until
    /// stop(). When it waits, it parks and the other ULTs run. It stays on its thread.
    bool primary = false;
    /// CPUs to bind to, if more than one; empty: any. Not with `cpu`.
    cpu_set cpus = {};
    int rank = -1;  ///< See execution_stream::rank(); -1: the lowest that is free.
};

/// What a stream is doing; see execution_stream::state().
enum class stream_state : std::uint8_t {
    running,   ///< Runs work, or looks for some.
    asleep,    ///< Sleeps until there is work; a driven one: nobody drives it now.
    stopping,  ///< Was asked to stop.
    stopped    ///< Runs nothing, until revive().
};

class scheduler;
class timer;

/// Runs work from pools in the order its scheduler chooses, on an OS thread or, if driven, on the
/// caller of run_ready(). When idle it polls for a moment, then sleeps without using the CPU.
///
/// Owner:   owns its thread, timers and main pool. Call stop() first; otherwise the destructor
///          does, which waits for all ready work.
///          A ULT of the main pool that is still parked when the stream stops runs again only if
///          another stream serves that pool. What is left in the stream's own pool when it is
///          destroyed is logged and canceled: see pool.
///          A stream destroyed by its own work (a ULT calls exit() and the stream is static) is
///          kept until the process ends, which is logged.
///          A fork() child has none of its parent's streams. Giving them work, or joining their
///          unfinished work, throws error{closed}; stop() and the destructor do nothing, and exit()
///          does not wait for them. If the parent forked in a ULT, the child is on a plain thread.
///          A child forked by code a stream runs (a ULT, tasklet, callback, scheduler or pool) must
///          exec() or _exit() before that code returns; otherwise it is terminated there, with a
///          message on standard error and exit code 1. Streams created in the child work normally.
/// Threads: any, unless a member says otherwise. A driven stream has one driving thread at a time,
///          and no other thread may stop it.
/// Failure: throws error{invalid} for a core that does not exist or a single-stream pool that
///          another stream serves; error{no_memory} if the OS grants no thread or descriptor.
///          A ULT that overflows its stack ends the process. The first stream installs a SIGSEGV
///          handler that reports it and passes other faults to the previous handler.
class execution_stream {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of its timers, by its clock.

    /// Starts a stream that serves its own main_pool().
    explicit execution_stream(execution_stream_options options = {});
    /// Starts a stream that runs what `order` chooses; the first pool of `order` is main_pool().
    /// Both throw error{invalid}, with a sentence, for options that exclude each other or name what
    /// is not there, and for a null `order`.
    execution_stream(std::unique_ptr<scheduler> order, execution_stream_options options = {});
    ~execution_stream();
    execution_stream(const execution_stream&) = delete;
    execution_stream& operator=(const execution_stream&) = delete;

    /// The stream running the caller; null on a plain thread.
    static execution_stream* current() noexcept;

    /// The pool that spawn(stream, …) uses.
    pool& main_pool() noexcept;
    std::string_view name() const noexcept;
    bool driven() const noexcept;

    /// A number from 0 that no other stream of the process has, until this one is destroyed. A new
    /// stream gets the lowest that is free. set_rank() throws error{invalid}, changing nothing, for
    /// one that is taken, negative or over 1,000,000.
    int rank() const noexcept;
    void set_rank(int rank);
    /// What it does at the moment.
    stream_state state() const noexcept;

    /// The CPUs that it is bound to; empty: any.
    cpu_set cpus() const;
    /// Binds its thread to these from now on, while it runs; empty: any. A stopped stream's next
    /// thread. Throws error{invalid}, changing nothing, for a driven stream, which has no thread,
    /// and for CPUs that the process may not use.
    void set_cpus(const cpu_set& cpus);

    /// Replaces the scheduler while the stream runs; stacked schedulers continue. Parks the caller
    /// until done. Throws error{invalid}, changing nothing, if a pool served only by this stream
    /// still has ULTs and is not among the new pools, or if another stream serves one of the new
    /// single-stream pools.
    void set_scheduler(std::unique_ptr<scheduler> order);

    /// Current time on the clock of this stream's timers.
    time_point now() const noexcept;
    /// When the earliest armed timer is due; empty if none.
    std::optional<time_point> next_timer() const noexcept;

    /// Makes the stream poll `what`, starting soon. Throws error{invalid} if its wait handle cannot
    /// be waited on.
    void add_poller(poller& what);
    /// Once this returns, the stream no longer touches `what`. Called from another stream or
    /// thread, it waits for the unit the stream is running.
    void remove_poller(poller& what);

    /// Makes the stream poll again now, even if asleep. Cost: one load if awake.
    void wake() noexcept;

    /// Driven streams only (else throws error{invalid}): runs due timers, pollers and ready units
    /// until nothing is ready or `most` of them ran; returns how many. Not from inside the same
    /// stream.
    std::size_t run_ready(std::size_t most = std::numeric_limits<std::size_t>::max());

    /// Wakeable streams only (else throws error{invalid}): a descriptor that is readable when
    /// run_ready() has work, whatever its source; occasionally readable without work. Watch it with
    /// epoll or poll; do not read it. Silent once the stream is stopped.
    int wait_handle() const;

    /// Sets the polling time before an idle stream sleeps, as in execution_stream_options.
    void set_spin(std::chrono::nanoseconds time) noexcept;

    /// Finishes ready work of all its schedulers and ends the thread. Idempotent. Waits without a
    /// limit, so work that never stops being ready blocks it; see stop_within(). A calling ULT
    /// parks. Ready work in a pool that another threaded stream serves is left to that stream. Not
    /// callable from the stream itself (throws error{invalid}).
    ///
    /// Timed waits begun on this stream end on another one, by that stream's clock: one that serves
    /// the ULT's pool, else any with a thread, else the next one created. An unfinished
    /// post_scheduler() fails with error{closed}.
    void stop();
    /// The same, but abandons work still ready after `limit`. False: there was some. Still waits
    /// for work that neither ends, waits nor yields.
    bool stop_within(std::chrono::nanoseconds limit);

    /// Starts a stopped stream again, with the scheduler that it had (what was posted on it is
    /// gone), its name, rank, pollers and timers. A primary one makes a ULT of the caller, as at
    /// first. Throws error{invalid} if it is not stopped, or another stream serves one of its
    /// single-stream pools by now; error{no_memory} as the constructor does. It is then as stopped
    /// as before. Not while another thread calls stop() or revive().
    void revive();

    /// CPU time used by the stream's thread; zero if driven or stopped.
    std::chrono::nanoseconds cpu_time() const noexcept;

private:
    friend class timer;
    friend struct detail::stream_access;
    std::unique_ptr<detail::stream> impl_;
};

}  // namespace amalgam
