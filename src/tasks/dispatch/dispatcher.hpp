#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <sys/types.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/returned_child.hpp>

#include "tasks/dispatch/switcher.hpp"

namespace amalgam::detail {

class stream;
struct thread_store;

/// Runs the ULTs of one stream: which one runs now, and where a ULT that yields, waits, joins or
/// ends goes next. ULTs switch directly to each other; the loop's own context runs tasklets, timers
/// and pollers, and is what switcher calls the loop.
///
/// Owns:    through its bases, the stream's own pool and the loop's context.
/// Threads: the stream's, but for the static functions and those marked "seen".
class dispatcher : public switcher {
public:
    /// `of` is only kept for those above this layer. `primary`: a thread's ULT lives in the own
    /// pool, which therefore comes first.
    dispatcher(stream& of, bool primary) noexcept : switcher(primary), of_(of) {}
    dispatcher(const dispatcher&) = delete;
    dispatcher& operator=(const dispatcher&) = delete;

    stream& of() const noexcept { return of_; }
    execution_stream* owner = nullptr;  ///< For hooks.

    /// The one running the caller, or null. Never inlined: see dispatcher.cpp.
    static dispatcher* current() noexcept;
    /// The same, inlined: for functions that are not inlined themselves and do not switch.
    static dispatcher* current_in_line() noexcept { return current_; }
    /// Names the calling thread. As current_in_line().
    static const void* thread_mark() noexcept { return &current_; }
    /// Returns the previous one. For fork() children.
    static dispatcher* set_current(dispatcher* now) noexcept;
    /// Call after a user's function has returned to a stream. If it forked, the child is terminated
    /// here, as it must not run its parent's streams. Same restrictions as current_in_line().
    static void stay_in_parent() noexcept {
        if (current_ == nullptr) [[unlikely]]
            end_returned_child();
    }
    /// Whether the calling thread is the stream that has it as its main pool, or alone serves it.
    /// As current_in_line().
    static bool calls_for(const pool& what) noexcept {
        const dispatcher* const here = current_in_line();
        return here != nullptr && here == ready_work::main_server_of(what);
    }
    class on_thread;  ///< See on_thread.hpp.
    /// Whether the calling thread acts as this stream, also below another one on its stack.
    bool acts_here() const noexcept {
        const dispatcher* each = current();
        while (each != nullptr && each != this)
            each = each->below_;
        return each != nullptr;
    }

    /// The thread that runs it, or last did.
    pid_t thread_seen() const noexcept { return thread_id_; }
    /// When the last batch ended, in cycles(): changes with each batch.
    std::uint64_t batch_seen() const noexcept { return coarse_now_; }
    void renew_time() noexcept { coarse_now_ = cycles(); }
    /// The same where something may have run since.
    std::uint64_t renew_time_after_work() noexcept {
        const std::uint64_t ticks = cycles();
        const std::uint64_t took = ticks - coarse_now_;
        if (took > longest_hold_) [[unlikely]]
            longest_hold_ = took;
        coarse_now_ = ticks;
        return took;
    }
    /// The most that passed between two chances for others, in cycles().
    std::uint64_t longest_hold_seen() const noexcept { return longest_hold_; }
    void count_steal() noexcept { steals_ = steals_ + 1; }
    std::uint64_t steals_seen() const noexcept { return steals_; }

    /// For the loop: runs at most that many units, returns how many it ran.
    std::size_t run_batch(std::size_t most) noexcept;
    /// For the loop: runs one unit, and tells hooks.
    void run_told(work_unit& unit) noexcept;
    void enter(ult_core& next) noexcept;

    void leave_to_yield() noexcept;
    /// Moves the running ULT to another pool.
    void leave_to_move(pool& where) noexcept;
    /// Yields directly to `next`. False, without switching: `next` is not ready in a pool of this
    /// stream that supports removal out of order, the batch is used up, or `next` has a request
    /// pending.
    bool leave_to(ult_core& next) noexcept;
    /// The same in two steps: after the first, the caller must run `next` or make it ready.
    bool take(ult_core& next) noexcept;
    bool leave_to_taken(ult_core& next) noexcept;
    /// See may_yield_directly().
    bool may_leave_directly() const noexcept {
        const ult_core* const self = running();
        return self != nullptr && work_.may_pick_elsewhere() &&
               self->requests.load(std::memory_order_relaxed) == 0;
    }
    void leave_directly(work_unit& next) noexcept;
    /// See yield_directly_holding().
    bool leave_directly_holding(ult_core& next, std::atomic<bool>& held) noexcept;
    /// See may_run_another().
    bool may_run_another() noexcept {
        if (!work_.may_pick_elsewhere() || caches_.exceptions->any()) return false;
        const ult_core* const self = running();
        if (self != nullptr && !self->is_as_new()) return false;
        work_.spend();
        return true;
    }
    /// See leave_pool_at_end().
    void leave_pool_at_end() noexcept {
        ult_core& self = *running();
        pool& before = *self.home();
        self.begin_in(work_.own_pool());
        work_.count_ended(before, *this);
        work_.count_own();
    }
    /// Gives `who` the permit and yields directly to it. False, permit given but not yielded: it
    /// was not parked, is no ULT, or its pool is not served by this stream.
    bool unpark_and_leave_to(waiter& who) noexcept;
    void leave_to_park(waiter& until) noexcept;
    /// Parks by switching directly to `next`, which the caller has taken.
    void leave_to_park_for(waiter& until, ult_core& next) noexcept;
    /// The body of `self` has ended; goes on with `next`, which the caller has taken. Returns when
    /// the stack has a new body.
    void end_for(ult_core& self, ult_core& next) noexcept;
    /// Joins `other`; returns the dispatcher that then runs the caller. Null, not joined: the
    /// caller is not a ULT, or `other` has ended or belongs to another stream.
    dispatcher* join_here(ult_core& other) noexcept;

    /// The first function on every ULT's stack.
    static void ult_main(arrival first);

    /// The calling thread, on which the stream is from now on, becomes the ULT `main` of the own
    /// pool. The loop gets the stack `loop`, where it calls `turn` for ever.
    void become_ult(ult_core& main, const stack_memory& loop, void (*turn)(stream&)) noexcept;
    /// The end of that, called by `main`. The loop's stack is dropped where it stands.
    void end_as_ult() noexcept;
    /// Whether `who` is the ULT that is a thread.
    bool is_thread(const ult_core& who) const noexcept { return thread_ult_ == &who; }
    /// The loop's own stack between these two; null: it runs on that of its thread.
    const stack_memory* loop_memory() const noexcept { return loop_memory_; }

private:
    static void loop_main(arrival first);
    resumed leave(ult_core& self, fate what) noexcept;
    resumed leave_finished(ult_core& self) noexcept;
    void run_picked_told() noexcept;
    bool run_next(ult_core& next) noexcept;
    bool take_in_line(ult_core& next) noexcept;
    bool leave_to_taken_in_line(ult_core& next) noexcept;
    bool heed(ult_core& who) noexcept;

    // initial-exec: one load instead of a call into the dynamic linker.
    [[gnu::tls_model("initial-exec"),
      gnu::visibility("hidden")]] static inline constinit thread_local dispatcher* current_ =
        nullptr;

    seen_by_others<std::uint64_t> longest_hold_;
    seen_by_others<std::uint64_t> steals_;
    seen_by_others<std::uint64_t> coarse_now_;  // in cycles(), renewed after each batch and sleep
    seen_by_others<pid_t> thread_id_;
    stream& of_;
    const dispatcher* below_ = nullptr;  // that the thread acted as before, while it acts as this
    const ult_core* thread_ult_ = nullptr;
    void (*loop_turn_)(stream&) = nullptr;       // with thread_ult_
    const stack_memory* loop_memory_ = nullptr;  // with thread_ult_
};

/// The stream that runs the calling ULT. Throws error{invalid} outside a ULT: "only a ULT can …".
dispatcher& stream_of_ult(const char* what);
/// The running ULT. Throws error{invalid} where this_task::exit() does.
ult_core& running_that_may_exit();
/// Throws error{invalid} for an empty handle, and for the ULT that calls.
void refuse_join(const ult_core* of, const dispatcher* here);
/// As ult::migrate().
void ask_to_move(ult_core& core, pool& where);
void ask_to_move(ult_core& core);
/// The running ULT of `here`. Throws error{invalid} if it is pinned, or is its thread.
ult_core& running_that_may_move(dispatcher& here);

/// The calling thread's stock of finished stacks, whether or not a stream (`here`) runs it.
inline free_stock* stock_of(const dispatcher* here) noexcept {
    return here != nullptr ? here->caches().stock : ult_core::thread_stock();
}
inline block_cache* blocks_of(const dispatcher* here) noexcept {
    return here != nullptr ? here->caches().blocks : block_cache::of_thread();
}

}  // namespace amalgam::detail
