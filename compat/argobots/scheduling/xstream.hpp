#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "scheduling/sched.hpp"
#include "tool.hpp"

namespace amalgam::argobots {

/// The pool of the ULT that is a stream's main scheduler: room for one.
class scheduler_seat final : public pool {
public:
    scheduler_seat() noexcept : pool(pool_access::any_stream) {}
    ~scheduler_seat() override { drop_left(); }
    void push(work_unit& unit) noexcept override;
    void requeue(work_unit& unit) noexcept override;
    work_unit* pop() noexcept override { return ready_.exchange(nullptr); }
    bool empty() const noexcept override { return ready_.load() == nullptr; }
    std::size_t size() const noexcept override { return empty() ? 0 : 1; }

private:
    std::atomic<work_unit*> ready_{nullptr};
};

/// What a stream runs on its own stack: a tasklet, or the beginning of a ULT that needs a stack
/// from the system, which must not be asked between two ULTs.
class on_own_stack final : public work_unit {
public:
    on_own_stack() noexcept : work_unit(&run_unit) {}
    static void run_unit(work_unit& self) noexcept;
    ABT_thread_opaque* who = nullptr;

private:
    bool gets_stack(ABT_thread_opaque& which) noexcept;
    void rest_if_all_wait(const ABT_thread_opaque& which) noexcept;

    std::chrono::steady_clock::time_point asks_at_{};  // since there was no memory
    std::chrono::steady_clock::time_point told_at_{};  // in the log
    std::uint64_t refused_at_ = 0;                     // of the stream's `runs`, last
    std::size_t refused_in_turn_ = 0;
};

}  // namespace amalgam::argobots

/// A stream. What it runs next, in this order: what was handed over to directly, who waits for that
/// to leave, the main scheduler's ULT, or else what a predefined main scheduler chooses.
///
/// Threads: members that say so belong to the stream.
struct ABT_xstream_opaque {
    explicit ABT_xstream_opaque(bool is_primary) noexcept : primary(is_primary) {}

    /// Starts it, or starts it again. Throws what execution_stream does, and failure if
    /// the system has no more threads; it has ended then.
    void start();
    /// Waits until its pools are done, then ends its thread.
    void join();
    /// Replaces the main scheduler once it has run what is in its pools, but for those that the
    /// next one has, too. Called by a ULT of the stream, or while it is ended.
    void set_main_sched(ABT_sched_opaque& next_one);

    /// The stream's: for its order.
    amalgam::work_unit* next() noexcept;
    /// The stream's, for a ULT or tasklet that has just ended: what runs in its place, another one
    /// of its kind that has not begun. Null: end as usual. `spare`: see own_pool::take_if().
    ABT_thread_opaque* next_in_place(bool tasklet, void*& spare) noexcept;
    /// The stream's. Yields by one switch, if that is all there is to do. False: nothing is done.
    bool leave_directly(ABT_thread_opaque& who) noexcept;
    /// The primary ULT's: waits until as many units have run, or nothing is ready.
    void let_run(std::uint64_t number);
    /// The stream's. Runs `who` at the next switch.
    void hand_over_to(ABT_thread_opaque& who) noexcept;
    bool has_handed_over() const noexcept { return handed_first_ != nullptr; }
    /// The stream's, by the ULT of the main scheduler at its end.
    void main_sched_ended() noexcept;
    void note_begun(ABT_thread_opaque& who) noexcept {
        who.stream.store(this, std::memory_order_relaxed);
        who.state.store(ABT_THREAD_STATE_RUNNING, std::memory_order_release);
        amalgam::argobots::tell_tool_begun(who);
        ++runs;
    }
    bool ended() const noexcept { return end_.is_set(); }
    amalgam::pool& seat() noexcept { return seat_; }
    /// Has it look again, if it sleeps. Any thread's, at any time.
    void wake() noexcept;
    /// Binds its thread, or if it has ended, its next one. Empty: to any. Returns an error number.
    int set_affinity(std::vector<int> cpus);
    /// What was set, though some of these may not exist; else where its thread may run.
    std::vector<int> affinity();

    const bool primary;
    std::atomic<int> rank{0};
    ABT_sched_opaque* main_sched = nullptr;
    std::unique_ptr<amalgam::execution_stream> stream;
    std::atomic<bool> join_asked{false};
    std::atomic<bool> exit_asked{false};
    std::atomic<int> state{ABT_XSTREAM_STATE_RUNNING};
    bool ordinary = false;       ///< All but handed over units are in the pools; the stream's.
    bool requeue_first = false;  ///< The ULT that yields is a candidate, too; the stream's.
    std::atomic<unsigned> stacks_seen{0};  ///< The last request of stack traces it noticed.
    /// Whose end it tells now; see ABT_thread_opaque::tell_end().
    std::atomic<const ABT_thread_opaque*> ending{nullptr};
    std::atomic<int> holders{0};              ///< See runtime::hold().
    std::uint64_t runs = 0;                   ///< Units run so far; the stream's.
    std::vector<ABT_thread_opaque*> calling;  ///< In ABT_self_schedule(), outermost first.

private:
    bool rotate(ABT_thread_opaque& who) noexcept;
    bool rotate_to_handed(ABT_thread_opaque& who, amalgam::argobots::own_pool& home) noexcept;
    bool leave_to_chosen(ABT_thread_opaque& who) noexcept;
    ABT_thread_opaque* pick() noexcept;
    amalgam::work_unit* begin(ABT_thread_opaque& who) noexcept;
    amalgam::work_unit* next_of_all() noexcept;
    bool time_to_look() const noexcept { return runs >= looks_at_; }
    void wake_primary() noexcept;
    void leave_to_others() noexcept;
    void end_if_done() noexcept;
    void launch_main_sched();
    void end_main_sched(const ABT_sched_opaque& next_one);
    std::unique_ptr<amalgam::scheduler> make_order();
    void start_stream();
    void replace_stream(std::unique_ptr<amalgam::execution_stream> by) noexcept;
    void note_thread() noexcept;
    void forget_thread() noexcept;
    void wait_for_thread();

    std::uint64_t looks_at_ = 0;                 // of `runs`: then for more than the next unit
    amalgam::waiter* primary_waits_ = nullptr;   // in let_run()
    std::uint64_t primary_until_ = 0;            // of `runs`
    ABT_thread_opaque* handed_first_ = nullptr;  // linked by `next`
    ABT_thread_opaque* handed_last_ = nullptr;
    amalgam::argobots::on_own_stack on_own_stack_;
    amalgam::argobots::scheduler_seat seat_;
    amalgam::argobots::own_pool anchor_{ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, false};
    amalgam::mutex changing_;  // its main scheduler
    std::atomic<bool> main_ended_{false};
    std::mutex thread_lock_;          // of `stream`, as others see it, and the next three
    std::atomic<bool> known_{false};  // the thread, which lives meanwhile
    pthread_t thread_{};
    std::vector<int> affinity_;           // as last set; empty: never
    sigset_t signals_{};                  // blocked by whoever starts it
    std::atomic<bool> replacing_{false};  // the main scheduler ends for another
    amalgam::event replaced_;
    amalgam::event end_;
};
