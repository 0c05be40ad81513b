#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/looping_scheduler.hpp>

#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/limits.hpp"
#include "tasks/streams/stream.hpp"

// Schedulers with a run() of their own. Below one, ready_work gives out nothing, so every ULT that
// leaves returns to the loop's stack, and with it to run().

namespace amalgam {

namespace detail {

std::size_t stream_loop::run_loop_of_top(std::size_t most) noexcept {
    if (stop_.asked()) return 0;
    const bool counts = options_.driven;
    scheduler_loop loop(*this, counts ? most : std::numeric_limits<std::size_t>::max());
    {
        const scheduler_stack::running_loop mine(schedulers_);
        try {
            schedulers_.looping()->run(loop);
        } catch (...) {
            dispatcher::stay_in_parent();
            schedulers_.fail(loop.depth_, std::current_exception());
        }
    }
    dispatcher::stay_in_parent();
    return loop.happened_;
}

/// Whatever it does next, run() should return first.
bool stream_loop::ends_run() const noexcept {
    return stop_.asked() || schedulers_.asked() || schedulers_.has_lost();
}

bool stream_loop::top_is_done() noexcept {
    return schedulers_.is_stacked() && schedulers_.top().done();
}

std::size_t stream_loop::check_events() noexcept {
    return pollers_.poll() + fire_timers() + run_own_unit();
}

// Whatever its scheduler does, a primary stream serves the pool of its thread's ULT. One unit, so
// that run() is asked in between.
std::size_t stream_loop::run_own_unit() noexcept {
    if (!options_.primary) return 0;
    work_unit* const unit = runs_.work().own_pool().pop();
    if (unit == nullptr) return 0;
    run_unit(*unit);
    return 1;
}

void stream_loop::run_unit(work_unit& unit) noexcept {
    ready_work& work = runs_.work();
    if (work.budget() == 0) {
        runs_.renew_time();
        work.begin_batch(limits::min_batch);
    }
    work.spend();
    runs_.run_told(unit);
    // On a primary stream, ULTs go on to what is in the own pool.
    while (work_unit* const next = work.take_stashed())
        runs_.run_told(*next);
}

work_unit* stream_loop::pop_until(pool& from, time_point until) noexcept {
    for (;;) {
        if (work_unit* const unit = from.pop()) return unit;
        if (options_.driven || ends_run() || top_is_done() || now() >= until) return nullptr;
        if (check_events() == 0) {
            idle({&from, until});
        } else {
            idle_rounds_ = 0;
        }
    }
}

}  // namespace detail

work_unit* looping_scheduler::next() noexcept {
    for (pool* each : pools()) {
        if (work_unit* const unit = each->pop()) return unit;
    }
    return nullptr;
}

scheduler_loop::scheduler_loop(detail::stream_loop& of, std::size_t most) noexcept
    : of_(of), depth_(of.schedulers_.depth()), most_(most) {}

execution_stream& scheduler_loop::stream() const noexcept {
    return of_.runs_.of().owner();
}

/// While it lives, what runs is above run() on the loop's stack, or on another stack.
class scheduler_loop::below {
public:
    explicit below(scheduler_loop& loop) noexcept : loop_(loop) { loop_.busy_ = true; }
    ~below() { loop_.busy_ = false; }
    below(const below&) = delete;
    below& operator=(const below&) = delete;

private:
    scheduler_loop& loop_;
};

void scheduler_loop::check_caller() const {
    if (detail::dispatcher::current() == &of_.runs_ && of_.runs_.running() == nullptr && !busy_)
        return;
    throw error(errc::invalid,
                fmt::format("the scheduler_loop of stream '{}' was called from outside run(): use "
                            "it only in the run() that it was given to, and not in ULTs, "
                            "tasklets, timer callbacks, pollers or other threads",
                            of_.options_.name));
}

bool scheduler_loop::should_stop() noexcept {
    const bool driven = of_.options_.driven;
    if (of_.ends_run() || happened_ >= most_) return true;
    if (driven && of_.schedulers_.depth() > depth_) return true;  // what was posted goes first
    if (!quiet_) {
        quiet_ = true;
        return false;
    }
    return driven || of_.top_is_done();
}

void scheduler_loop::run(work_unit& unit) {
    check_caller();
    if (unit.listed_in.load(std::memory_order_relaxed) != nullptr) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot run a unit that is still queued in a pool, as "
                                "it would run twice: pop() it, or take it out by remove()",
                                of_.options_.name));
    }
    if (detail::ult_core::is_ult(unit) &&
        detail::ult_registry::is_parked(static_cast<detail::ult_core&>(unit))) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot run a ULT that is parked, as what it waits for "
                                "has not come: run only what pop() gave, and each once",
                                of_.options_.name));
    }
    const below mine(*this);
    quiet_ = false;
    ++happened_;
    of_.idle_rounds_ = 0;
    of_.run_unit(unit);
    of_.run_own_unit();
    if (of_.schedulers_.depth() > depth_) of_.run_those_above(depth_);
    if (of_.runs_.work().budget() == 0) events();
}

std::size_t scheduler_loop::events() noexcept {
    const std::size_t happened = of_.check_events();
    if (happened != 0) quiet_ = false;
    happened_ += happened;
    return happened;
}

std::size_t scheduler_loop::check_events() {
    check_caller();
    const below mine(*this);
    return events();
}

void scheduler_loop::idle() {
    if (check_events() != 0) {
        of_.idle_rounds_ = 0;
    } else if (!of_.options_.driven && !of_.ends_run()) {
        of_.idle({});
    }
}

}  // namespace amalgam
