#include <utility>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

#include "tasks/streams/stream.hpp"
#include "tasks/streams/turn.hpp"

// How a stream ends.

namespace amalgam::detail {

void stream::is_forked() noexcept {
    forked_.store(true, std::memory_order_relaxed);
    // Nobody is in the middle of these any more.
    left_.store(nullptr, std::memory_order_relaxed);
    ending_.store(nullptr, std::memory_order_relaxed);
    timers_->end_in_child();
    for (const served& each : served_)
        each.what->detach_in_child(*this);
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
    bool first = false;
    {
        const std::lock_guard hold(stop_lock_);
        first = stage_ == stage::open;
        if (first) stage_ = stage::stopping;
    }
    first ? stop_now() : wait_for(stage::stopped);
}

void stream::stay() noexcept {
    if (thread_.joinable()) thread_.detach();
    log(log_level::warn, "tasks",
        "a stream was destroyed by its own work, so it is kept until the process ends",
        {{"stream", options_.name}});
}

bool stream::stop_within(std::chrono::nanoseconds limit) {
    const auto by =
        deadline_after(limit, std::chrono::steady_clock::now()).time_since_epoch().count();
    time_point::rep was = stop_by_.load(std::memory_order_relaxed);
    while (by < was && !stop_by_.compare_exchange_weak(was, by, std::memory_order_relaxed))
        continue;
    stop();
    return !gave_up_.load(std::memory_order_relaxed);
}

void stream::stop_now() {
    if (thread_.joinable()) {
        stopping_.store(true, std::memory_order_seq_cst);
        bell_.ring();
        wait_for(stage::thread_ended);
        thread_.join();
    } else {
        stopping_.store(true, std::memory_order_seq_cst);
        const turn mine(*this);
        finish_ready();
    }
    if (wake_up_call_) lie_down();
    replace_if_asked();  // notifies late requesters
    end_stacked();
    detach_all();
    timers_->close();
    reach(stage::stopped);
}

void stream::wait_for(stage what) {
    const stream* const here = current();
    std::unique_lock hold(stop_lock_);
    if (here != nullptr && here->running() == nullptr) {
        // A tasklet or callback, which blocks its stream.
        return stage_reached_.wait(hold, [&] { return stage_ >= what; });
    }
    if (stage_ >= what) return;
    stop_waiter me{what, stop_waiters_, {}};
    me.who.waits_for("stream to stop");
    stop_waiters_ = &me;
    hold.unlock();
    me.who.park();
}

// A waiter for the last stage may destroy this stream as soon as it knows.
void stream::reach(stage what) noexcept {
    stop_waiter* told = nullptr;
    {
        const std::lock_guard hold(stop_lock_);
        stage_ = what;
        for (stop_waiter** at = &stop_waiters_; *at != nullptr;) {
            stop_waiter& each = **at;
            if (each.until > what) {
                at = &each.next;
            } else {
                *at = each.next;
                each.next = std::exchange(told, &each);
            }
        }
        stage_reached_.notify_all();
    }
    while (told != nullptr)
        std::exchange(told, told->next)->who.unpark();
}

void stream::prepare_to_detach() noexcept {
    for (const served& each : served_)
        each.what->prepare_to_detach(*this);
}

// Of two streams that stop at once, the later one to say so runs what both serve.
bool stream::has_work_of_its_own() const noexcept {
    for (const served& each : served_) {
        if (!each.what->empty() && !each.what->served_on_after(*this)) return true;
    }
    return false;
}

bool stream::may_go_on_stopping() noexcept {
    const time_point by{time_point::duration(stop_by_.load(std::memory_order_relaxed))};
    if (by == time_point::max() || std::chrono::steady_clock::now() < by) return true;
    if (has_work_of_its_own()) {
        gave_up_.store(true, std::memory_order_relaxed);
        log(log_level::warn, "tasks", "a stopped stream left work behind that is still ready",
            {{"stream", options_.name}});
    }
    return false;
}

// Also runs schedulers below the top: they must leave nothing behind, and their work may wake what
// the top waits for.
std::size_t stream::round_of_all() noexcept {
    pollers_.poll();
    fire_timers();
    if (replacing_.load(std::memory_order_relaxed) != nullptr) replace_if_asked();
    std::size_t ran = 0;
    if (stashed_ != nullptr || has_work_of_its_own()) {
        for (std::size_t i = orders_.size(); ran == 0 && i-- > 0;) {
            use(*orders_[i].order);
            ran = run_batch(batch_);
        }
        use_top();
    }
    if (ran == 0 && orders_.size() > 1 && unstack()) ran = 1;
    return ran;
}

void stream::finish_ready() noexcept {
    prepare_to_detach();
    while (round_of_all() != 0 && may_go_on_stopping())
        continue;
    hand_over();
}

// A push may have woken this stream in place of another one.
void stream::hand_over() noexcept {
    for (const served& each : served_) {
        if (!each.what->empty()) each.what->notify();
    }
}

}  // namespace amalgam::detail
