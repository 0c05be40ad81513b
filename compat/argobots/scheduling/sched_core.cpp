#include <algorithm>

#include "runtime.hpp"
#include "scheduling/own_pool.hpp"

// What runs next, and when a scheduler ends.

bool ABT_sched_opaque::pools_done() const noexcept {
    const ABT_sched_opaque* const next_one = replaced_by.load(std::memory_order_acquire);
    return std::all_of(pools.begin(), pools.end(), [next_one](ABT_pool each) {
        return each->is_done() || (next_one != nullptr && next_one->has(each));
    });
}

bool ABT_sched_opaque::has(ABT_pool pool) const noexcept {
    return std::find(pools.begin(), pools.end(), pool) != pools.end();
}

bool ABT_sched_opaque::has_to_exit() const noexcept {
    if (exit_asked.load(std::memory_order_relaxed)) return true;
    return main_of != nullptr && main_of->exit_asked.load(std::memory_order_relaxed);
}

bool ABT_sched_opaque::has_to_stop() const noexcept {
    if (has_to_exit()) return true;
    const bool may_stop = in_pool || finish_asked.load(std::memory_order_relaxed) ||
                          replaced_by.load(std::memory_order_relaxed) != nullptr ||
                          (main_of != nullptr && main_of->join_asked.load());
    return may_stop && pools_done();
}

namespace {

[[gnu::always_inline]] inline ABT_thread_opaque* taken(ABT_pool_opaque& from) {
    return from.own != nullptr ? from.own->take_in_line(ABT_POOL_CONTEXT_OWNER_PRIMARY)
                               : from.take(ABT_POOL_CONTEXT_OWNER_PRIMARY);
}

}  // namespace

ABT_thread_opaque* ABT_sched_opaque::choose_before(const ABT_pool_opaque* last) {
    for (ABT_pool each : order) {
        if (ABT_thread_opaque* const who = taken(*each)) return who;
        if (each == last) break;
    }
    return nullptr;
}

ABT_thread_opaque* ABT_sched_opaque::choose() {
    if (kind != ABT_SCHED_RANDWS) return choose_before(nullptr);
    if (ABT_thread_opaque* const who = taken(*pools.front())) return who;
    if (pools.size() < 2) return nullptr;
    ABT_pool const victim = pools[1 + random.below(pools.size() - 1)];
    return victim->take(ABT_POOL_CONTEXT_OWNER_SECONDARY);
}

namespace amalgam::argobots {

void run_sched(void* which) {
    auto& sched = *static_cast<ABT_sched_opaque*>(which);
    if (!sched.predefined()) return sched.functions.run(&sched);
    while (!sched.has_to_stop()) {
        if (ABT_thread_opaque* const who = sched.choose()) {
            ABT_self_schedule(who, ABT_POOL_NULL);
        } else {
            ABT_xstream_check_events(&sched);
            if (sched.in_pool) ABT_self_yield();
        }
    }
}

}  // namespace amalgam::argobots
