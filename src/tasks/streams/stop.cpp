#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/dispatch/hooks.hpp"
#include "tasks/streams/stream.hpp"

// How a stream ends.

namespace amalgam::detail {

using stage = stop_state::stage;

void stream::is_forked() noexcept {
    forked_.store(true, std::memory_order_relaxed);
    runs_.forget_in_child();
    loop_.timers().end_in_child();
    schedulers_.pools().detach_in_child();
}

void stream::refuse_forked() const {
    if (!forked()) return;
    throw error(errc::closed,
                fmt::format("stream '{}' belongs to the parent process and does not run after "
                            "fork(): create a new execution_stream in the child",
                            options_.name));
}

void stream::stop() {
    if (forked()) return;
    if (options_.primary) return stop_primary();
    if (current() == this) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot stop itself, as its own work would wait for "
                                "its own end; stop it from another thread or stream",
                                options_.name));
    }
    stop_.begin() ? stop_now() : stop_.wait_for(stage::stopped);
}

bool stream::stop_within(std::chrono::nanoseconds limit) {
    stop_.limit_to(limit);
    stop();
    return !stop_.gave_up();
}

void stream::stay() noexcept {
    if (thread_.joinable()) thread_.detach();
    log(log_level::warn, "tasks",
        "a stream was destroyed by its own work, so it is kept until the process ends",
        {{"stream", options_.name}});
}

void stream::stop_now() {
    stop_.ask();
    if (thread_.joinable()) {
        loop_.ring();
        stop_.wait_for(stage::thread_ended);
        const std::lock_guard hold(thread_lock_);
        thread_.join();
    } else {
        const stream_loop::turn mine(loop_);
        finish_ready();
    }
    loop_.be_quiet();
    end_schedulers();
    loop_.timers().close();
    if (hooks::any()) hooks::tell(task_event::stream_stopped, owner_);
    stop_.reach(stage::stopped);
}

void stream::stop_primary() {
    if (primary_ == nullptr) return;
    if (current() != this || !primary_->runs()) {
        throw error(errc::invalid,
                    fmt::format("the primary stream '{}' can only be stopped or destroyed by the "
                                "thread that created it, outside of other ULTs",
                                options_.name));
    }
    stop_.ask();
    // The loop's stack is dropped, so a run() on it must have returned.
    while (schedulers_.runs_loop())
        runs_.leave_to_yield();
    served_pools& pools = schedulers_.pools();
    pools.prepare_to_detach();
    // The own pool always regains this ULT, so the loop never finds a stacked scheduler without
    // work. A unit from one of the schedulers goes to the own pool, from which each of them runs it
    // next.
    while (pools.has_work_of_its_own() && schedulers_.bring_one()) {
        runs_.leave_to_yield();
        if (!may_go_on_stopping()) break;
    }
    pools.hand_over();
    end_schedulers();
    {
        const std::lock_guard hold(thread_lock_);
        primary_.reset();
    }
    loop_.timers().close();
    if (hooks::any()) hooks::tell(task_event::stream_stopped, owner_);
    stop_.reach(stage::stopped);
}

void stream::revive() {
    refuse_forked();
    if (!stop_.reached(stage::stopped)) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot be revived, as it was not stopped: call stop() "
                                "first",
                                options_.name));
    }
    check_primary(options_);
    schedulers_.begin_again(!options_.driven);
    try {
        if (options_.primary) schedulers_.pools().attach_own();
        stop_.reopen();
        loop_.timers().open(runs_, *bell_);
        begin_running();
    } catch (...) {
        schedulers_.pools().detach_all();
        loop_.timers().close();
        stop_.ask();
        stop_.reach(stage::stopped);
        throw;
    }
    if (options_.wakeable) loop_.ring();
}

bool stream::may_go_on_stopping() noexcept {
    if (!stop_.is_late()) return true;
    if (schedulers_.pools().has_work_of_its_own()) {
        stop_.give_up();
        log(log_level::warn, "tasks", "a stopped stream left work behind that is still ready",
            {{"stream", options_.name}});
    }
    return false;
}

void stream::finish_ready() noexcept {
    schedulers_.pools().prepare_to_detach();
    while (loop_.round_of_all() != 0 && may_go_on_stopping())
        continue;
    schedulers_.pools().hand_over();
}

void stream::end_schedulers() noexcept {
    schedulers_.replace_if_asked(true);  // notifies late requesters
    schedulers_.end_stacked();
    schedulers_.pools().detach_all();
}

}  // namespace amalgam::detail
