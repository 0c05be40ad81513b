#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/drive.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/on_thread.hpp"
#include "tasks/idle/bell.hpp"
#include "tasks/idle/sleep_times.hpp"
#include "tasks/idle/sleeper.hpp"
#include "tasks/idle/spin_policy.hpp"
#include "tasks/streams/poller_set.hpp"
#include "tasks/streams/scheduler_stack.hpp"
#include "tasks/streams/stop_state.hpp"
#include "tasks/streams/timer_heap.hpp"

namespace amalgam {
class scheduler_loop;
}

namespace amalgam::detail {

/// The loop of a stream: batches of units, pollers and timers in turn; without work it spins for a
/// moment, then sleeps.
///
/// Owns:    pollers, timers, and what the stream sleeps on.
/// Threads: the stream's, or whoever drives or stops it; any may change pollers and timers, wake
///          it, set_spin() and ask for what is "seen".
class stream_loop {
public:
    using time_point = execution_stream::time_point;

    stream_loop(dispatcher& runs, scheduler_stack& schedulers, const stop_state& stop, bell& rings,
                const execution_stream_options& options);

    /// While it exists, the calling thread acts as the stream.
    class turn;

    /// Runs a batch of units, and what pollers and timers have; or idles.
    void turn_once() noexcept;
    /// For a driven stream: the same until nothing is ready, without idling. Throws
    /// error{invalid} if somebody drives it already.
    std::size_t run_ready(std::size_t most);
    /// See drive_turns.
    std::size_t drive_with_work(std::size_t most, const poller* looked) noexcept;
    std::size_t drive_without_work(std::size_t most, const poller* looked) noexcept;
    std::size_t drive_kept() noexcept;
    std::atomic<unsigned>& driven_word() noexcept { return pollers_.used_word(); }
    /// While it exists, nobody else drives the stream. Throws error{invalid} if somebody does.
    class driver;
    /// For a stream that stops: a round that also runs schedulers below the top. Returns how many
    /// units it ran, or schedulers it ended.
    std::size_t round_of_all() noexcept;
    /// For code on the loop's stack: the next unit of `from`, which the stream serves. Until there
    /// is one, does what else the stream has to do, and idles. Null: `until` has come, the stream
    /// is driven, or run() of the scheduler should return.
    work_unit* pop_until(pool& from, time_point until) noexcept;
    /// A wakeable stream was stopped: its handle stays quiet.
    void be_quiet() noexcept;

    void add_poller(poller& what);
    void remove_poller(poller& what);
    void wake() noexcept;
    /// For its driver between two turns, who has given it something to do: as wake(), but costs
    /// next to nothing unless its wait handle is in use. Whoever asks for that first finds it
    /// readable.
    void wake_driver() noexcept {
        if (handle_given_.load(std::memory_order_relaxed)) wake();
    }
    void ring() noexcept { bell_.ring(); }
    void set_spin(std::chrono::nanoseconds time) noexcept;
    int wait_handle() const;
    timer_heap& timers() noexcept { return *timers_; }
    const amalgam::clock& time() const noexcept { return clock_; }
    time_point now() const noexcept { return clock_.now(); }
    bool asleep_seen() const noexcept { return bell_.asleep.load(std::memory_order_relaxed); }
    bool has_pollers() { return pollers_.any(); }
    const sleep_times& slept() const noexcept { return slept_; }
    bool driven_seen() const noexcept { return pollers_.used_seen(); }
    /// See drive.hpp.
    bool driven_here() const noexcept { return runs_.acts_here(); }

private:
    friend class amalgam::scheduler_loop;

    /// What an idle stream waits for: a unit in one of the top scheduler's pools, or in this one.
    struct wanted {
        const pool* only = nullptr;
        time_point until = time_point::max();
    };
    std::size_t round(std::size_t most) noexcept;
    [[noreturn]] void refuse_second_driver() const;
    bool is_calm() noexcept;
    std::size_t run_if_ready(std::size_t most) noexcept;
    std::size_t run_if_any_polls(std::size_t most) noexcept;
    std::size_t end_turn(std::size_t happened) noexcept;
    std::size_t end_turn_renewing() noexcept;
    std::size_t run_if_due(std::size_t most) noexcept;
    std::size_t run_polled(std::size_t most) noexcept;
    std::size_t run_taken(std::size_t most) noexcept;
    std::size_t run_rounds(std::size_t most) noexcept;
    std::size_t fire_timers() noexcept { return is_timer_due() ? fire_due_timers() : 0; }
    std::size_t fire_due_timers() noexcept;
    bool is_timer_due() noexcept {
        const time_point earliest = timers_->earliest();
        return earliest != time_point::max() && has_come(earliest);
    }
    bool has_come(time_point earliest) noexcept;
    /// A round would find nothing now, except what pollers have.
    bool has_run_dry_but_pollers() noexcept;
    /// After a round: another one would find nothing but what others brought since.
    bool has_done_all() noexcept;
    bool schedulers_have_run_dry() noexcept;
    /// In the pools of the scheduler on top.
    bool has_ready_units() noexcept;
    void idle(wanted what) noexcept;
    bool may_sleep(const pool* only) noexcept;
    void sleep(wanted what) noexcept;
    // For schedulers with a run() of their own: see scheduler_loop.cpp.
    std::size_t run_loop_of_top(std::size_t most) noexcept;
    bool ends_run() const noexcept;
    bool top_is_done() noexcept;
    std::size_t check_events() noexcept;
    std::size_t run_own_unit() noexcept;
    void run_unit(work_unit& unit) noexcept;
    void run_those_above(std::size_t depth) noexcept;
    // Wakeable: before and after what its caller has it run.
    void get_up() noexcept;
    void lie_down() noexcept;

    dispatcher& runs_;
    scheduler_stack& schedulers_;
    const stop_state& stop_;
    const execution_stream_options& options_;
    const amalgam::clock& clock_;
    const std::unique_ptr<timer_heap, timer_heap::giver> timers_;
    std::uint64_t timers_checked_ = 0;  // in cycles()
    poller_set pollers_;

    bell& bell_;
    spin_policy spin_;
    sleep_times slept_;
    time_point idle_since_{};
    unsigned idle_rounds_ = 0;  // 0: not idle
    std::atomic<bool> wake_pending_{false};
    std::unique_ptr<sleeper> sleeper_;               // null: driven, and not wakeable
    std::unique_ptr<wake_up_call> wake_up_call_;     // null: not wakeable
    mutable std::atomic<bool> handle_given_{false};  // Until then nobody waits for this to wake.
    unsigned quiet_nights_ = 0;
    bool batch_was_full_ = false;  // In the last round: the scheduler may have more.
};

class stream_loop::turn {
public:
    explicit turn(stream_loop& self) noexcept : polled_(self.pollers_), here_(self.runs_) {}

private:
    poller_set::in_use polled_;
    dispatcher::on_thread here_;
};

class stream_loop::driver {
public:
    explicit driver(stream_loop& self) : self_(self) {
        if (!self_.pollers_.begin_use()) self_.refuse_second_driver();
    }
    ~driver() { self_.pollers_.end_use(); }
    driver(const driver&) = delete;
    driver& operator=(const driver&) = delete;

private:
    stream_loop& self_;
};

}  // namespace amalgam::detail
