#include "tasks/streams/stream_loop.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>

#include "tasks/streams/stream.hpp"

namespace amalgam::detail {

stream_loop::stream_loop(dispatcher& runs, scheduler_stack& schedulers, const stop_state& stop,
                         bell& rings, const execution_stream_options& options)
    : runs_(runs),
      schedulers_(schedulers),
      stop_(stop),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : clock::steady()),
      timers_(&timer_heap::take()),
      bell_(rings),
      spin_(options.spin) {
    if (!options.driven || options.wakeable) sleeper_ = std::make_unique<sleeper>(bell_);
    if (!options.wakeable) return;
    wake_up_call_ = std::make_unique<wake_up_call>();
    sleeper_->watch(wake_up_call_->handle());
}

[[gnu::noinline]] bool stream_loop::has_come(time_point earliest) noexcept {
    if (options_.clock != nullptr) return now() >= earliest;
    // About half a microsecond between clock readings is soon enough, and a reading costs as much
    // as running a unit.
    const std::uint64_t ticks = cycles();
    if (ticks - timers_checked_ < 1024) return false;
    if (now() >= earliest) return true;
    timers_checked_ = ticks;
    return false;
}

[[gnu::noinline]] std::size_t stream_loop::fire_due_timers() noexcept {
    return timers_->fire(now());
}

// Returns how much happened. Inlined: a driven stream may do one for each unit.
[[gnu::always_inline]] inline std::size_t stream_loop::round(std::size_t most) noexcept {
    // What was ready before goes first; what pollers and timers bring runs in the same round.
    const bool was_ready = !runs_.work().is_known_empty();
    std::size_t ran = was_ready ? runs_.run_batch(most) : 0;
    std::size_t happened = 0;
    const bool loops = schedulers_.looping() != nullptr;
    if (loops) [[unlikely]]
        happened += run_loop_of_top(most);
    std::size_t came = pollers_.poll();
    came += fire_timers();
    const bool may_be_ready = (!was_ready || came != 0) && !runs_.work().is_known_empty();
    if (may_be_ready && !loops && ran < most) ran += runs_.run_batch(most - ran);
    batch_was_full_ = ran == most;
    happened += ran + came;
    if (happened == 0 && schedulers_.is_stacked()) happened += schedulers_.unstack();
    if (schedulers_.asked() && !schedulers_.runs_loop())
        schedulers_.replace_if_asked(stop_.asked());
    return happened;
}

void stream_loop::turn_once() noexcept {
    if (round(runs_.work().batch()) != 0) {
        idle_rounds_ = 0;
    } else {
        idle({});
    }
}

std::size_t stream_loop::round_of_all() noexcept {
    pollers_.poll();
    fire_timers();
    if (schedulers_.asked()) schedulers_.replace_if_asked(stop_.asked());
    std::size_t ran = 0;
    if (runs_.work().has_stashed() || schedulers_.pools().has_work_of_its_own())
        ran = schedulers_.run_batch_of_any(runs_);
    if (ran == 0 && schedulers_.is_stacked() && schedulers_.unstack()) ran = 1;
    return ran;
}

// What was posted onto this one goes first, and to its end.
void stream_loop::run_those_above(std::size_t depth) noexcept {
    while (schedulers_.depth() > depth && !ends_run()) {
        if (!options_.driven) {
            turn_once();
        } else if (round(runs_.work().batch()) == 0) {
            return;
        }
    }
}

[[gnu::noinline]] bool stream_loop::has_ready_units() noexcept {
    const auto pools = schedulers_.top().pools();
    return !std::all_of(pools.begin(), pools.end(), [](const pool* each) { return each->empty(); });
}

// Schedulers below the top, or with a run() of their own, may have more than their pools show.
[[gnu::noinline]] bool stream_loop::schedulers_have_run_dry() noexcept {
    return !schedulers_.is_stacked() && schedulers_.looping() == nullptr &&
           !runs_.work().has_stashed() && !has_ready_units();
}

[[gnu::always_inline]] inline bool stream_loop::has_run_dry_but_pollers() noexcept {
    if (!runs_.work().is_known_empty() && (batch_was_full_ || !schedulers_have_run_dry()))
        return false;
    return !schedulers_.asked() && !is_timer_due();
}

[[gnu::always_inline]] inline bool stream_loop::has_done_all() noexcept {
    return has_run_dry_but_pollers() && !pollers_.has_more();
}

/// Of a driven stream: nothing needs a whole round, but units may be ready, and pollers have work.
/// Whoever replaces its scheduler drives it meanwhile, or is below a scheduler with a run() of its
/// own: so nobody has asked for that where it runs the own pool only.
[[gnu::always_inline]] inline bool stream_loop::is_calm() noexcept {
    return runs_.work().runs_own_only() && !handle_given_.load(std::memory_order_relaxed) &&
           timers_->earliest() == time_point::max();
}

std::size_t stream_loop::run_ready(std::size_t most) {
    if (!pollers_.begin_use()) [[unlikely]]
        refuse_second_driver();
    return run_if_ready(most);
}

// These two end in calls of what comes next, so that they save no registers.

inline std::size_t stream_loop::drive_with_work(std::size_t most, const poller* looked) noexcept {
    return pollers_.only() == looked && is_calm() ? run_polled(most) : run_if_due(most);
}

inline std::size_t stream_loop::drive_without_work(std::size_t most,
                                                   const poller* looked) noexcept {
    if (pollers_.only() != looked || !is_calm() || !runs_.work().has_no_own()) [[unlikely]]
        return run_if_due(most);
    return pollers_.end_use_unchanged() ? 0 : end_turn_renewing();
}

[[gnu::noinline]] std::size_t stream_loop::end_turn_renewing() noexcept {
    pollers_.renew_unless_used();
    return 0;
}

std::size_t stream_loop::drive_kept() noexcept {
    while (!pollers_.begin_use())
        std::this_thread::yield();
    return run_if_ready(std::numeric_limits<std::size_t>::max());
}

void drive_turns::open(execution_stream& what) noexcept {
    loop_ = &stream_access::of(what).loop();
    word_ = &loop_->driven_word();
}
std::size_t drive_turns::drive_with_work(std::size_t most) noexcept {
    last_.store(dispatcher::thread_mark(), std::memory_order_relaxed);
    return loop_->drive_with_work(most, looked_);
}
std::size_t drive_turns::drive_without_work(std::size_t most) noexcept {
    last_.store(dispatcher::thread_mark(), std::memory_order_relaxed);
    return loop_->drive_without_work(most, looked_);
}
std::size_t drive_turns::drive_kept() noexcept {
    return loop_->drive_kept();
}
void drive_turns::drives_here() noexcept {
    last_.store(dispatcher::thread_mark(), std::memory_order_relaxed);
}
bool drive_turns::wake_if_driver() const noexcept {
    if (last_.load(std::memory_order_relaxed) != dispatcher::thread_mark()) return false;
    loop_->wake_driver();
    return true;
}
bool driven_here(const execution_stream& what) noexcept {
    return stream_access::of(what).loop().driven_here();
}

/// Of a stream in use, which ends with it. A caller who polls mostly finds nothing, and taking the
/// stream costs more than looking. Ends in calls of what is rarer, so that it saves few registers.
[[gnu::always_inline]] inline std::size_t stream_loop::run_if_ready(std::size_t most) noexcept {
    return is_calm() && runs_.work().has_no_own() ? run_if_any_polls(most) : run_if_due(most);
}

[[gnu::noinline]] std::size_t stream_loop::run_if_due(std::size_t most) noexcept {
    if (handle_given_.load(std::memory_order_relaxed) || !has_run_dry_but_pollers())
        return run_taken(most);
    return run_if_any_polls(most);
}

[[gnu::always_inline]] inline std::size_t stream_loop::run_if_any_polls(std::size_t most) noexcept {
    return pollers_.has_work() ? run_polled(most) : end_turn(0);
}

[[gnu::noinline]] std::size_t stream_loop::end_turn(std::size_t happened) noexcept {
    pollers_.end_use();
    return happened;
}

/// As run_taken(), where pollers have something: no round looks for the rest before. Units that
/// were ready run in their turn, after what is polled.
[[gnu::noinline]] std::size_t stream_loop::run_polled(std::size_t most) noexcept {
    std::size_t happened = 0;
    {
        const dispatcher::on_thread here(runs_);
        happened = pollers_.poll();
        bool all_ran = true;
        if (!runs_.work().is_known_empty()) {
            const std::size_t at_once = std::min(runs_.work().batch(), most);
            const std::size_t ran = runs_.run_batch(at_once);
            happened += ran;
            batch_was_full_ = ran == at_once;
            all_ran =
                !batch_was_full_ && (runs_.work().runs_own_only() || schedulers_have_run_dry());
        }
        const bool may_end =
            all_ran && !schedulers_.asked() && !is_timer_due() && !pollers_.has_more();
        if (!may_end && happened < most) [[unlikely]]
            happened += run_rounds(most - happened);
    }
    pollers_.end_use();
    return happened;
}

[[gnu::noinline]] std::size_t stream_loop::run_taken(std::size_t most) noexcept {
    const bool has_sleeper = handle_given_.load(std::memory_order_relaxed);
    if (has_sleeper) get_up();
    std::size_t happened = 0;
    {
        const dispatcher::on_thread here(runs_);
        happened = run_rounds(most);
        if (has_sleeper) lie_down();
    }
    pollers_.end_use();
    return happened;
}

[[gnu::noinline]] std::size_t stream_loop::run_rounds(std::size_t most) noexcept {
    std::size_t happened = 0;
    while (happened < most) {
        const std::size_t now_happened = round(std::min(runs_.work().batch(), most - happened));
        happened += now_happened;
        if (now_happened == 0 || has_done_all()) break;
    }
    return happened;
}

void stream_loop::idle(wanted what) noexcept {
    // Reading the clock takes as long as a round, and an idle stream should mainly poll.
    constexpr unsigned rounds_between_looks = 16;
    if (++idle_rounds_ % rounds_between_looks == 0) {
        const time_point at = std::chrono::steady_clock::now();
        if (idle_rounds_ == rounds_between_looks) idle_since_ = at;
        runs_.renew_time_after_work();  // Of pollers, too.
        if (at - idle_since_ >= spin_.limit()) {
            sleep(what);
            idle_rounds_ = 0;
            return;
        }
    }
    // Work often comes soon, and a pause takes as long as a round.
    constexpr unsigned rounds_at_full_speed = 64;
    if (idle_rounds_ > rounds_at_full_speed) cpu_relax();
}

bool stream_loop::may_sleep(const pool* only) noexcept {
    if (stop_.asked_before_sleep()) return false;
    if (wake_pending_.exchange(false, std::memory_order_seq_cst)) return false;
    if (schedulers_.asked_before_sleep()) return false;
    if (options_.primary && !runs_.work().own_pool().empty()) return false;
    if (only != nullptr ? !only->empty() : has_ready_units()) return false;
    return pollers_.prepare_to_sleep();
}

void stream_loop::sleep(wanted what) noexcept {
    const time_point lay_down = std::chrono::steady_clock::now();
    bell_.asleep.store(true, std::memory_order_seq_cst);  // see bell.hpp
    if (may_sleep(what.only)) {
        slept_.begin(lay_down);
        const time_point due = std::min(timers_->earliest(), what.until);
        if (due == time_point::max()) {
            sleeper_->sleep(std::nullopt);
        } else if (const auto left = due - now(); left > left.zero()) {
            sleeper_->sleep(left);
        }
        timers_checked_ = 0;
        runs_.renew_time();
        const time_point woke = std::chrono::steady_clock::now();
        slept_.end(woke);
        spin_.slept(woke - lay_down);
    }
    bell_.asleep.store(false, std::memory_order_relaxed);
}

void stream_loop::wake() noexcept {
    wake_pending_.store(true, std::memory_order_seq_cst);
    bell_.ring();
}

void stream_loop::set_spin(std::chrono::nanoseconds time) noexcept {
    spin_.set(time);
    wake();
}

void stream_loop::add_poller(poller& what) {
    const int handle = what.wait_handle();
    if (sleeper_ && handle >= 0) sleeper_->watch(handle);
    pollers_.add(what);
    wake();
}

void stream_loop::remove_poller(poller& what) {
    const int handle = what.wait_handle();
    if (!pollers_.remove(what, *this)) {
        throw error(errc::invalid, fmt::format("stream '{}' does not have this poller: remove only "
                                               "pollers that were added, once each",
                                               options_.name));
    }
    if (sleeper_ && handle >= 0) sleeper_->forget(handle);
}

[[gnu::noinline]] void stream_loop::refuse_second_driver() const {
    throw error(errc::invalid,
                fmt::format("stream '{}' is already running: call run_ready() from one thread at a "
                            "time, and not from the stream's own work",
                            options_.name));
}

// From here on: driven streams whose caller sleeps for them, which nobody can before the handle was
// given. From then on, between two run_ready() calls, either
// `asleep` is set and everything is armed, or the bell's descriptor is readable, or will be once
// the ringer has written.

int stream_loop::wait_handle() const {
    if (wake_up_call_ != nullptr) {
        const bool first = !handle_given_.exchange(true, std::memory_order_relaxed);
        if (first && !stop_.asked()) bell_.strike();  // Nothing is armed yet.
        return sleeper_->handle();
    }
    throw error(errc::invalid,
                fmt::format("stream '{}' has no wait handle: create it with .driven = true and "
                            ".wakeable = true",
                            options_.name));
}

void stream_loop::get_up() noexcept {
    // A ringer may not have written yet. Its late write would wake without need, so drain now and
    // then; not each time, as it is a system call.
    constexpr unsigned often = 8;
    const bool rung = !bell_.asleep.exchange(false, std::memory_order_seq_cst);
    if (rung || ++quiet_nights_ % often == 0) bell_.drain();
}

void stream_loop::lie_down() noexcept {
    if (stop_.asked()) return be_quiet();
    bell_.asleep.store(true, std::memory_order_seq_cst);  // see bell.hpp
    if (may_sleep(nullptr)) {
        // Read with `asleep` set: a thread that arms an earlier timer rings.
        const time_point due = timers_->earliest();
        if (due == time_point::max() || due > now()) return wake_up_call_->set(due);
    }
    bell_.ring();
}

void stream_loop::be_quiet() noexcept {
    if (wake_up_call_ == nullptr) return;
    wake_up_call_->cancel();
    bell_.drain();
}

}  // namespace amalgam::detail
