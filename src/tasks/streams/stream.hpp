#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "tasks/streams/poller_set.hpp"
#include "tasks/idle/sleeper.hpp"
#include "tasks/idle/spin_policy.hpp"
#include "tasks/streams/timer_heap.hpp"
#include "tasks/ult/block_cache.hpp"
#include "tasks/ult/call_stack.hpp"
#include "tasks/ult/core.hpp"

namespace amalgam::detail {

/// A value that one thread writes and others read: relaxed loads and stores.
template <typename T>
class seen_by_others {
public:
    seen_by_others& operator=(T to) noexcept {
        value_.store(to, std::memory_order_relaxed);
        return *this;
    }
    void operator--() noexcept { *this = static_cast<T>(*this - 1); }
    operator T() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<T> value_{};
};

/// Implementation of execution_stream: switching between ULTs, and the loop that feeds it. ULTs
/// switch directly to each other; the loop's own context runs tasklets, timers and pollers.
///
/// A ULT being left must not be visible to others before its context is saved, or another stream
/// would run it on a stack still in use. So what happens to it (back to the pool, parked, ended) is
/// recorded in `left_…`, and the context that is switched to carries it out first: arrived().
class stream {
public:
    using time_point = execution_stream::time_point;

    /// Units run between two checks of pollers and timers; grows while that many take hardly a
    /// microsecond.
    static constexpr std::size_t least_batch = 32;
    static constexpr std::size_t most_batch = 256;
    stream(execution_stream& owner, std::unique_ptr<scheduler> order,
           execution_stream_options options);
    ~stream();
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    /// The stream running the caller, or null. Never inlined: see stream.cpp.
    static stream* current() noexcept;
    /// The same, inlined: for functions that are not inlined themselves and do not switch.
    static stream* current_in_line() noexcept { return current_; }
    static stream* set_current(stream* now) noexcept;  // returns the previous one
    /// Call after a user's function has returned to a stream. If it forked, the child is terminated
    /// here, as it must not run its parent's streams. Same restrictions as current_in_line().
    static void stay_in_parent() noexcept {
        if (current_ == nullptr) [[unlikely]]
            end_returned_child();
    }

    /// A ULT or tasklet of this stream has ended. True: it was detached, and the caller frees it. A
    /// joiner on another thread waits while it is `ending_seen`: see join_state.
    bool end(join_state& what) noexcept;
    const join_state* ending_seen() const noexcept {
        return ending_.load(std::memory_order_acquire);
    }

    // Switching; only on the stream itself.
    ult_core* running() const noexcept { return running_.load(std::memory_order_relaxed); }
    /// For other threads: see ult_registry.
    const ult_core* running_seen() const noexcept {
        return running_.load(std::memory_order_acquire);
    }
    const ult_core* leaving_seen() const noexcept { return left_.load(std::memory_order_acquire); }
    /// Changes with every unit picked: each takes one from the budget, and a new batch, which
    /// refills the budget, has a new time.
    struct progress {
        std::uint64_t batch;
        std::size_t budget;
        bool operator==(const progress&) const = default;
    };
    progress progress_seen() const noexcept { return {coarse_now_, budget_}; }
    bool asleep_seen() const noexcept { return bell_.asleep.load(std::memory_order_relaxed); }
    bool has_pollers() { return pollers_.any(); }
    /// The thread that runs it, or last did.
    pid_t thread_seen() const noexcept { return thread_id_; }
    void enter(ult_core& next) noexcept;  // from the loop
    /// The first function on every ULT's stack.
    static void ult_main(arrival first);
    /// The first function on the stack of a primary stream's loop.
    static void loop_main(arrival first);
    void leave_to_yield() noexcept;
    /// Moves the running ULT to another pool.
    void leave_to_move(pool& where) noexcept;
    /// Yields directly to `next`. False, without switching: `next` is not ready in a pool of this
    /// stream that supports removal out of order, the batch is used up, or `next` has a request
    /// pending.
    bool leave_to(ult_core& next) noexcept;
    void leave_to_park(waiter& until) noexcept;
    /// Joins `other`; returns the stream that then runs the caller. Null, not joined: the caller is
    /// not a ULT, or `other` has ended or belongs to another stream.
    stream* join_here(ult_core& other) noexcept;

    /// Adds a new ULT to its pool. False: not the stream's own pool, use the general path.
    bool start_own(ult_core& who) noexcept {
        if (!push_own(who)) return false;
        who.made_at_home = true;  // it cannot run before the caller leaves
        own_pool_.add_own_ults(1);
        return true;
    }
    /// The same for uncounted units.
    bool push_own(work_unit& unit) noexcept {
        if (unit.home() != &own_pool_) return false;
        own_pool_.push_own(unit);
        return true;
    }
    bool owns(const pool* what) const noexcept { return what == &own_pool_; }
    /// The calling thread's stock of finished stacks, whether or not a stream (`here`) runs it.
    static free_stock* stock_of(stream* here) noexcept {
        return here != nullptr ? here->stock_ : ult_core::thread_stock();
    }
    static block_cache* blocks_of(stream* here) noexcept {
        return here != nullptr ? here->blocks_ : block_cache::of_thread();
    }
    /// The stream that has it as its main pool, or that alone serves it; or null.
    static const stream* main_server_of(const pool& what) noexcept {
        return what.own_.who.load(std::memory_order_relaxed);
    }
    /// Whether the calling thread is that stream. As current_in_line().
    static bool calls_for(const pool& what) noexcept {
        const stream* const here = current_in_line();
        return here != nullptr && here == main_server_of(what);
    }
    /// `here`: the calling stream, or null.
    static void count_ults(pool& in, std::ptrdiff_t more, const stream* here) noexcept {
        if (here != nullptr && main_server_of(in) == here) {
            in.add_own_ults(more);
        } else {
            in.other_ults_.fetch_add(more, std::memory_order_relaxed);
        }
    }
    bool serves(const pool* what) const noexcept;

    /// Stacks `order` on the current scheduler until it is done; called from the loop.
    void stack(std::unique_ptr<scheduler> order, promise<void> ended) noexcept;
    void replace_scheduler(std::unique_ptr<scheduler> order);
    /// A pool that it serves is about to be destroyed: no scheduler is asked any more.
    void lose_pool() noexcept;

    // Implementation of the other execution_stream members.
    void start();
    void check_wakeable() const;
    void get_wakeable();
    void stop();
    bool stop_within(std::chrono::nanoseconds limit);
    /// Its owner is destroyed while it runs the caller: it continues without an owner.
    void stay() noexcept;
    std::size_t run_ready(std::size_t most);
    void add_poller(poller& what);
    void remove_poller(poller& what);
    void wake() noexcept;
    int wait_handle() const;
    void set_spin(std::chrono::nanoseconds time) noexcept;
    /// In a fork() child, for each stream of the parent: see forks.hpp.
    void is_forked() noexcept;
    bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }
    static bool is_left_to_parent(const pool* what) noexcept {
        return what != nullptr && what->left_to_parent();
    }
    void ring() noexcept { bell_.ring(); }
    time_point now() const noexcept { return clock_->now(); }
    std::chrono::nanoseconds cpu_time() const noexcept;

    bool is_primary(const ult_core& who) const noexcept {
        return primary_ != nullptr && is_of_primary(who);
    }
    execution_stream& owner() noexcept { return owner_; }
    pool& main_pool() noexcept { return *main_pool_.load(std::memory_order_relaxed); }
    timer_heap& timers() noexcept { return *timers_; }
    const timer_heap& timers() const noexcept { return *timers_; }
    const amalgam::clock& time() const noexcept { return *clock_; }
    /// Whether it keeps running without being driven.
    bool stays() const noexcept {
        return !options_.driven && !stopping_.load(std::memory_order_relaxed);
    }
    /// For other threads; the pool must outlive the call.
    bool serves_seen(const pool& what) const noexcept { return what.served_by(*this); }
    const execution_stream_options& options() const noexcept { return options_; }

private:
    enum class fate : unsigned char { resumed, yielded, moved, parked, finished };
    class turn;
    class primary;

    /// The caller that drives a stream. Throws error{invalid} if there is one already.
    class driver {
    public:
        explicit driver(stream& self);
        ~driver();
        driver(const driver&) = delete;
        driver& operator=(const driver&) = delete;

    private:
        stream& self_;
    };

    struct stacked {
        std::unique_ptr<scheduler> order;
        promise<void> ended;
    };
    struct replacement {
        std::unique_ptr<scheduler> order;
        waiter who;
        std::exception_ptr refused;
    };
    struct served {
        pool* what;
        unsigned times;  // a stacked scheduler may share pools with the one below
    };
    void attach_pools(const scheduler& of);
    void detach_pools(const scheduler& of) noexcept;
    void attach_own_pool();
    void detach_pool(pool& what) noexcept;
    void detach_all() noexcept;
    void use(scheduler& which) noexcept;
    void use_top() noexcept;
    void end_stacked() noexcept;
    bool unstack() noexcept;  // false: the top is not done
    void replace_bottom(std::unique_ptr<scheduler> order);
    void replace_if_asked() noexcept;
    work_unit* pick_inline() noexcept;
    /// What continues after a switch, and the stream that runs it now, possibly another one.
    struct resumed {
        ult_core* who;  ///< Null: the loop.
        stream* here;
    };
    static resumed arrived(arrival at) noexcept;
    resumed leave(ult_core& self, fate what) noexcept;
    resumed leave_finished(ult_core& self) noexcept;
    bool run_next(ult_core& next) noexcept;
    bool heed(ult_core& who) noexcept;
    void settle_parked(ult_core& who) noexcept;
    resumed jump(call_stack& from, call_stack& to) noexcept;
    resumed jump_plain(call_stack& from, call_stack& to) noexcept;
    resumed jump_from_catch(call_stack& from, call_stack& to) noexcept;
    void settle() noexcept;
    void requeue(ult_core& who) noexcept;

    void check_cpu() const;
    void bind_to_cpu() const noexcept;
    void check_primary() const;
    bool is_of_primary(const ult_core& who) const noexcept;
    work_unit* next_of_others() noexcept;
    void stop_primary();
    bool run_one_of_all() noexcept;
    void stop_now();
    void refuse_forked() const;
    void prepare_to_detach() noexcept;
    bool has_work_of_its_own() const noexcept;
    bool may_go_on_stopping() noexcept;
    std::size_t round_of_all() noexcept;
    void finish_ready() noexcept;
    void hand_over() noexcept;
    void thread_main();
    void turn_once() noexcept;
    std::size_t run_batch(std::size_t most) noexcept;
    void adapt_batch(std::uint64_t took) noexcept;
    std::size_t fire_timers() noexcept;
    std::size_t round(std::size_t most) noexcept;
    void idle() noexcept;
    void sleep() noexcept;
    bool may_sleep() noexcept;
    void get_up() noexcept;
    void lie_down() noexcept;

    // initial-exec: one load instead of a call into the dynamic linker.
    [[gnu::tls_model("initial-exec"),
      gnu::visibility("hidden")]] static inline constinit thread_local stream* current_ = nullptr;

    // Used at every switch.
    std::atomic<ult_core*> running_{nullptr};  // null: the loop itself
    work_unit* stashed_ = nullptr;             // picked by a ULT for the loop to run
    seen_by_others<std::size_t> budget_;       // units left in this batch
    exception_state* thread_exceptions_ = nullptr;
    free_stock* stock_ = nullptr;               // of the thread
    block_cache* blocks_ = nullptr;             // of the thread
    seen_by_others<std::uint64_t> coarse_now_;  // in cycles(), renewed after each batch and sleep
    call_stack* from_ = nullptr;                // for sanitizers
    // The ULT switched away from, and what to do with it; null: done.
    std::atomic<ult_core*> left_{nullptr};
    std::atomic<const join_state*> ending_{nullptr};
    fate left_for_ = fate::resumed;
    waiter* left_until_ = nullptr;
    std::atomic<pool*> main_pool_{nullptr};
    scheduler* order_ = nullptr;  // on top of orders_
    bool own_order_ = false;      // only own_pool_: no virtual calls
    bool known_order_ = false;    // no user function chooses, and not primary
    call_stack loop_;

    execution_stream& owner_;
    execution_stream_options options_;
    const amalgam::clock* clock_;
    fifo_pool own_pool_;
    const scheduler* own_scheduler_ = nullptr;  // made here, over own_pool_
    std::vector<stacked> orders_;
    std::vector<served> served_;
    std::atomic<replacement*> replacing_{nullptr};
    const std::unique_ptr<timer_heap, timer_heap::giver> timers_;
    bell& bell_;
    std::uint64_t timers_checked_ = 0;  // in cycles()
    std::size_t batch_ = least_batch;
    poller_set pollers_;

    spin_policy spin_;
    time_point idle_since_{};
    unsigned idle_rounds_ = 0;  // 0: not idle

    std::atomic<bool> wake_pending_{false};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> driving_{false};
    std::atomic<bool> forked_{false};
    std::unique_ptr<sleeper> sleeper_;            // null: driven, and not wakeable
    std::unique_ptr<wake_up_call> wake_up_call_;  // null: not wakeable
    unsigned quiet_nights_ = 0;
    enum class stage : unsigned char { open, stopping, thread_ended, stopped };
    /// A ULT or thread that waits for this stream to end.
    struct stop_waiter {
        stage until;
        stop_waiter* next;
        waiter who;
    };
    void reach(stage what) noexcept;
    void wait_for(stage what);
    std::mutex stop_lock_;
    stage stage_ = stage::open;              // under the lock
    stop_waiter* stop_waiters_ = nullptr;    // the same
    std::condition_variable stage_reached_;  // for those who cannot park
    std::atomic<time_point::rep> stop_by_{time_point::max().time_since_epoch().count()};
    std::atomic<bool> gave_up_{false};
    seen_by_others<pid_t> thread_id_;
    std::thread thread_;
    std::unique_ptr<primary> primary_;  // null: it has a thread of its own, or is driven
};

inline bool stream::end(join_state& what) noexcept {
    if (what.made_at_home) {
        ending_.store(&what, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        const bool unseen = what.joiner.load(std::memory_order_acquire) == join_state::nobody;
        if (unseen) what.joiner.store(join_state::finished_alone_mark, std::memory_order_release);
        ending_.store(nullptr, std::memory_order_release);
        if (unseen) return false;
    }
    return what.finish();
}

}  // namespace amalgam::detail
