#pragma once

#include <cstddef>

#include <amalgam/tasks/scheduler.hpp>

namespace amalgam {

class execution_stream;
class scheduler_loop;

/// A scheduler with a loop of its own: run() pops from pools, decides, and runs units through a
/// scheduler_loop. With scheduler::next(), which most schedulers need, ULTs switch directly to each
/// other; here each of them returns to run() first.
///
///     void run(scheduler_loop& loop) override {
///         while (!loop.should_stop()) {
///             if (work_unit* unit = choose()) {
///                 loop.run(*unit);
///             } else {
///                 loop.idle();
///             }
///         }
///     }
///
/// Pass it to a stream's constructor, set_scheduler() or post_scheduler() like any other.
///
/// Threads: run() is called on the stream's own stack, so it must not wait; pool::pop_until() may
///          be called.
/// Failure: an exception from run() does not end the stream, which goes on by next(). It is logged;
///          if the scheduler was posted, its future throws it once the scheduler is done().
class looping_scheduler : public scheduler {
public:
    /// May return at any time. The stream then checks its events, sleeps if nothing ran, and calls
    /// run() again unless should_stop() had another reason; so keep state in members. A run() that
    /// does not return when should_stop() holds blocks stop(), set_scheduler() and run_ready().
    virtual void run(scheduler_loop& loop) = 0;

    /// Used while the stream stops, to finish ready work, and after run() threw. Default: takes
    /// from the first pool that has a unit.
    work_unit* next() noexcept override;
};

/// What the run() of a looping_scheduler has of its stream.
///
/// Owner:   the stream; valid until run() returns.
/// Threads: that of run() only, outside of units.
/// Failure: run(), check_events() and idle() throw error{invalid} when called from a ULT, a
/// tasklet,
///          timer callback or poller, or another thread.
class scheduler_loop {
public:
    scheduler_loop(const scheduler_loop&) = delete;
    scheduler_loop& operator=(const scheduler_loop&) = delete;

    /// The stream that the scheduler runs on.
    execution_stream& stream() const noexcept;

    /// Whether run() should return: the stream stops, or its scheduler is being replaced; or this
    /// scheduler was posted, and is done(). On a driven stream also once run_ready() has run as
    /// many units as it was asked for, or nothing ran since the last call of should_stop().
    /// Cost: some loads.
    bool should_stop() noexcept;

    /// Runs a unit that the caller has popped, from whatever pool; returns when it ends, waits or
    /// yields. Units that it hands its stream to directly, such as a joiner, run meanwhile. If it
    /// is a posted scheduler, returns when that one is done. Pollers and timers are checked after
    /// each batch of calls. Throws error{invalid}, running nothing, for a unit that is still queued
    /// in a pool, and for a ULT that is parked.
    void run(work_unit& unit);

    /// Runs due timers and pollers; returns how many had something to do. Call it now and then, or
    /// idle(), while no unit runs: otherwise timed waits on this stream end late.
    std::size_t check_events();

    /// Nothing is ready: checks events, and without any spins for a moment, then sleeps until a
    /// push, an event or stop(), as a stream without units does. Returns early and often. Does not
    /// sleep while one of pools() has a unit.
    void idle();

private:
    friend class detail::stream_loop;
    class below;
    scheduler_loop(detail::stream_loop& of, std::size_t most) noexcept;
    void check_caller() const;
    std::size_t events() noexcept;

    detail::stream_loop& of_;
    const std::size_t depth_;  // of the scheduler in the stream's stack
    const std::size_t most_;
    std::size_t happened_ = 0;
    bool quiet_ = false;  // nothing happened since should_stop() was asked
    bool busy_ = false;   // a unit, timer or poller runs in a call of this
};

}  // namespace amalgam
