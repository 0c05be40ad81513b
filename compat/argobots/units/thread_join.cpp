#include <amalgam/core/log.hpp>

#include "runtime.hpp"
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
    std::atomic<unsigned>& others_;
};

bool join_first(ABT_thread_opaque& who) {
    const blocked while_waiting;
    try {
        if (who.is_tasklet()) {
            static_cast<tasklet_thread&>(who).wait_for_end();
        } else if (who.where == kept_in::heap) {
            who.handle.join();  // the program may free the stack that it gave
        } else {
            who.handle.wait();
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
