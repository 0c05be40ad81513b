#include <sched.h>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>

#include "runtime.hpp"
#include "scheduling/own_pool.hpp"
#include "sync/sync.hpp"

// Joining, by any number of callers at once, each of which the end of the ULT tells. But a ULT of
// Amalgam, which one on a given stack is, has one joiner: the first, and the others wait for it.
// What they wait with is one for all ULTs.

namespace amalgam::argobots {

namespace {

struct meeting {
    mutex busy;
    condition_variable changed;
};

meeting& place() {
    static meeting one;
    return one;
}

/// One that waits for the first; with the lock.
class counted {
public:
    explicit counted(ABT_thread_opaque& who) noexcept : others_(who.others_joining) {
        others_.fetch_add(1, std::memory_order_relaxed);
    }
    ~counted() {
        if (others_.fetch_sub(1, std::memory_order_relaxed) == 1) place().changed.notify_all();
    }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;

private:
    std::atomic<std::uint32_t>& others_;
};

/// False: it cannot be.
bool wait_for(ABT_thread_opaque& who, bool only_one) {
    blocked while_waiting({ABT_SYNC_EVENT_TYPE_THREAD_JOIN, &who});
    ABT_thread_opaque* const me = self();
    if (me != nullptr && me->is_primary()) let_queued_run(*me, who);
    while_waiting.again();
    try {
        if (who.on_given_stack) {
            who.rare_part().handle.join();  // the program may free the stack that it gave
        } else {
            who.wait_for_end(only_one);
        }
        return true;
    } catch (const std::exception& thrown) {
        log(log_level::error, "argobots", "a ULT could not be joined", {{"what", thrown.what()}});
    }
    return false;
}

/// The last that its caller does with `who`, which another joiner may free now.
void tell_others(ABT_thread_opaque& who, join_stage now) {
    if (who.joins.exchange(now, std::memory_order_acq_rel) != join_stage::awaited) return;
    const locked_by_caller hold(place().busy);
    place().changed.notify_all();
}

/// Waits while another caller joins; what that came to.
join_stage wait_for_first(ABT_thread_opaque& who) {
    locked_by_caller hold(place().busy);
    const counted in(who);
    for (;;) {
        join_stage seen = who.joins.load(std::memory_order_acquire);
        if (seen == join_stage::joining &&
            !who.joins.compare_exchange_strong(seen, join_stage::awaited))
            continue;
        if (seen != join_stage::joining && seen != join_stage::awaited) return seen;
        hold.wait(place().changed);
    }
}

void join_in_turn(ABT_thread_opaque& who) {
    join_stage seen = who.joins.load(std::memory_order_acquire);
    if (seen == join_stage::joined) return;
    for (seen = join_stage::open; seen != join_stage::joined; seen = wait_for_first(who)) {
        join_stage before = join_stage::open;
        if (!who.joins.compare_exchange_strong(before, join_stage::joining)) continue;
        const bool joined = wait_for(who, false);
        return tell_others(who, joined ? join_stage::joined : join_stage::open);
    }
}

// Of those that began before, any number may still be here; nobody begins to join it now, so an
// open one needs no claim.
void join_in_turn_last(ABT_thread_opaque& who) {
    if (who.joins.load(std::memory_order_acquire) == join_stage::open) {
        if (has_ended(who) || wait_for(who, true))
            who.joins.store(join_stage::joined, std::memory_order_relaxed);
        return;
    }
    join_in_turn(who);
    if (who.others_joining.load(std::memory_order_relaxed) == 0) return;
    locked_by_caller hold(place().busy);
    while (who.others_joining.load(std::memory_order_relaxed) != 0)
        hold.wait(place().changed);
}

}  // namespace

void join_thread(ABT_thread_opaque& who) {
    if (who.on_given_stack) return join_in_turn(who);
    if (!who.end_is_told()) wait_for(who, false);
}

bool has_ended(ABT_thread_opaque& who) noexcept {
    if (!who.on_given_stack) return who.end_is_told();
    const detail::ult_core* const core = detail::core_of(who.rare_part().handle);
    return core == nullptr || detail::has_ended(*core);
}

void join_and_tell(ABT_thread_opaque& who) {
    class kept {
    public:
        explicit kept(ABT_thread_opaque& which) noexcept : joining_(which.others_joining) {
            joining_.fetch_add(1, std::memory_order_relaxed);
        }
        ~kept() {
            const locked_by_caller hold(place().busy);
            joining_.fetch_sub(1, std::memory_order_release);
            place().changed.notify_all();
        }

    private:
        std::atomic<std::uint32_t>& joining_;
    };
    const kept until_told(who);
    join_thread(who);
    tell_tool(who, ABT_TOOL_EVENT_THREAD_JOIN);
}

void join_last(ABT_thread_opaque& who) {
    if (who.on_given_stack) return join_in_turn_last(who);
    if (!who.end_is_told()) wait_for(who, true);
    // For no longer than a barrier on all threads takes, or one that joins it takes to tell a tool,
    // even if that has left since. The calling stream may have to run it.
    constexpr unsigned looks_alone = 100;
    for (unsigned looks = 0; who.others_joining.load(std::memory_order_acquire) != 0; ++looks) {
        if (looks >= looks_alone && detail::running_unit() != nullptr) {
            this_task::yield();
        } else {
            ::sched_yield();
        }
    }
}

}  // namespace amalgam::argobots

// Other pools may end meanwhile, and are not looked into.
amalgam::argobots::own_pool* ABT_thread_opaque::own_pool_here() const noexcept {
    const ABT_thread_opaque* const caller = amalgam::argobots::self();
    if (caller == nullptr) return nullptr;
    const ABT_xstream_opaque& here = *caller->stream.load(std::memory_order_relaxed);
    ABT_pool const first = here.main_sched->order.front();
    if (first != pool.load(std::memory_order_relaxed)) return nullptr;
    return first->own != nullptr && first->own->is_private_here() ? first->own : nullptr;
}

void ABT_thread_opaque::wait_for_end(bool only_one) {
    amalgam::argobots::runtime::refuse_in_child();
    amalgam::argobots::joiner me;
    me.who.waits_for("join");
    amalgam::argobots::own_pool* const home = own_pool_here();
    if (home == nullptr || !home->note_joiner(*this, me, only_one)) {
        const bool quickly = ends_quickly.load();
        if (quickly) others_joining.fetch_add(1);  // who frees it waits until it was looked at
        const bool over = !add_joiner(me) || (quickly && is_over_after_all());
        if (quickly) others_joining.fetch_sub(1);
        if (over) return;
    }
    me.who.park();
}

bool ABT_thread_opaque::add_joiner(amalgam::argobots::joiner& one) noexcept {
    std::uintptr_t seen = end.load(std::memory_order_acquire);
    do {
        if (is_mark(seen)) return false;
        one.before = seen;
    } while (!end.compare_exchange_weak(seen, reinterpret_cast<std::uintptr_t>(&one)));
    return true;
}

/// The end may have been told between its two steps that did not see the joiner.
bool ABT_thread_opaque::is_over_after_all() noexcept {
    amalgam::detail::barrier_on_all_threads();
    amalgam::argobots::runtime::get()->let_end(*this);
    return end.load(std::memory_order_acquire) == ended_alone_mark;
}

void ABT_thread_opaque::tell_end() noexcept {
    std::uintptr_t joins_it = end.exchange(ended_mark, std::memory_order_acq_rel);
    while (joins_it != 0) {
        auto& one = *reinterpret_cast<amalgam::argobots::joiner*>(joins_it);
        joins_it = one.before;  // first: once told, it goes
        one.who.unpark();
    }
}
