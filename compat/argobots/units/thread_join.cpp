#include <amalgam/core/log.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>

#include "runtime.hpp"
#include "scheduling/own_pool.hpp"
#include "sync/sync.hpp"

// Joining, by any number of callers at once, while a ULT of Amalgam has one: the first joins, the
// others wait for it. What they wait with is one for all ULTs, since few have a second joiner.

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

bool join_first(ABT_thread_opaque& who) {
    const blocked while_waiting;
    ABT_thread_opaque* const me = self();
    if (me != nullptr && me->is_primary()) let_queued_run(*me, who);
    try {
        if (who.on_given_stack) {
            who.rare_part().handle.join();  // the program may free the stack that it gave
        } else {
            who.wait_for_end();
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

}  // namespace

void join_thread(ABT_thread_opaque& who) {
    join_stage seen = who.joins.load(std::memory_order_acquire);
    if (seen == join_stage::joined) return;
    for (seen = join_stage::open; seen != join_stage::joined; seen = wait_for_first(who)) {
        join_stage before = join_stage::open;
        if (!who.joins.compare_exchange_strong(before, join_stage::joining)) continue;
        const bool joined = join_first(who);
        return tell_others(who, joined ? join_stage::joined : join_stage::open);
    }
}

bool has_ended(ABT_thread_opaque& who) noexcept {
    if (!who.on_given_stack) return who.end_is_told();
    const detail::ult_core* const core = detail::core_of(who.rare_part().handle);
    return core == nullptr || detail::has_ended(*core);
}

// Of those that began before, any number may still be here; nobody begins to join it now, so an
// open one needs no claim.
void join_last(ABT_thread_opaque& who) {
    if (who.joins.load(std::memory_order_acquire) == join_stage::open) [[likely]] {
        if (has_ended(who) || join_first(who))
            who.joins.store(join_stage::joined, std::memory_order_relaxed);
        return;
    }
    join_thread(who);
    if (who.others_joining.load(std::memory_order_relaxed) == 0) return;
    locked_by_caller hold(place().busy);
    while (who.others_joining.load(std::memory_order_relaxed) != 0)
        hold.wait(place().changed);
}

}  // namespace amalgam::argobots

void ABT_thread_opaque::wait_for_end() {
    if (!amalgam::argobots::has_ended(*this)) amalgam::argobots::runtime::refuse_in_child();
    amalgam::waiter me;
    me.waits_for("join");
    const auto mine = reinterpret_cast<std::uintptr_t>(&me);
    amalgam::argobots::own_pool* const home = pool.load(std::memory_order_relaxed)->own;
    if (home == nullptr || !home->is_private_here() || !home->note_joiner(*this, mine)) {
        std::uintptr_t was = 0;
        if (!end.compare_exchange_strong(was, mine)) return;
        if (ends_quickly.load() && is_over_after_all()) return;
    }
    me.park();
}

/// The end may have been told between its two steps that did not see the joiner.
bool ABT_thread_opaque::is_over_after_all() noexcept {
    amalgam::detail::barrier_on_all_threads();
    amalgam::argobots::runtime::get()->let_end(*this);
    return end.load(std::memory_order_acquire) == ended_alone_mark;
}

void ABT_thread_opaque::tell_end() noexcept {
    const std::uintptr_t joins_it = end.exchange(ended_mark, std::memory_order_acq_rel);
    if (joins_it != 0) reinterpret_cast<amalgam::waiter*>(joins_it)->unpark();
}
