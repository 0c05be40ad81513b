#include <algorithm>
#include <utility>

#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>
#include <amalgam/tasks/extension/guest.hpp>

#include "callback.hpp"
#include "runtime.hpp"
#include "tool.hpp"

// The life of a ULT: created, launched, ended, launched again, freed.

namespace amalgam::argobots {

namespace {

std::atomic<std::uint64_t> next_id{1};

void run_function(ABT_thread_opaque& who) noexcept {
    try {
        if (!who.canceled.load(std::memory_order_acquire)) who.function(who.arg);
    } catch (const detail::exit_ult&) {
    } catch (...) {
        log_escaped("an exception escaped from a ULT's function");
    }
}

/// What a ULT of Amalgam runs for one of ours.
struct body {
    ABT_thread_opaque* who;
    void operator()() const noexcept {
        run_function(*who);
        tell_tool(*who, ABT_TOOL_EVENT_THREAD_FINISH);
        if (!who->named) destroy_values(*who);  // which may wait
        detail::guest() = nullptr;
        if (who->kind == thread_kind::scheduler) return scheduler_ended(*who);
        if (!who->named) return free_thread(*who);
        who->state.store(ABT_THREAD_STATE_TERMINATED, std::memory_order_release);
    }
    static void scheduler_ended(ABT_thread_opaque& who) noexcept;
};

void body::scheduler_ended(ABT_thread_opaque& who) noexcept {
    auto& sched = *static_cast<ABT_sched_opaque*>(who.arg);
    ABT_xstream_opaque* const of = sched.main_of;
    sched.thread = nullptr;
    sched.in_pool = false;
    free_thread(who);
    if (of != nullptr) return of->main_sched_ended();
    if (sched.automatic) free_sched(sched);
}

}  // namespace

ABT_thread_opaque* self() noexcept {
    return static_cast<ABT_thread_opaque*>(detail::guest());
}

ABT_thread_opaque* thread_of(work_unit& unit) noexcept {
    return static_cast<ABT_thread_opaque*>(detail::guest_of(unit));
}

void launch(ABT_thread_opaque& who) {
    constexpr const detail::closure_type& type = detail::inline_closure<body>::type;
    nursery& where = runtime::get()->newborn();
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_relaxed);
    std::size_t bytes = who.attr.stack_bytes;
    if (bytes == 0) bytes = runtime::get()->default_stack_bytes();
    constexpr std::size_t least = 16 * 1024, least_given = 20 * 1024;
    const bool joinable = who.named && who.kind != thread_kind::scheduler;
    ult_options options;
    if (who.attr.stack != nullptr && bytes >= least_given && joinable) {
        options.stack = {static_cast<std::byte*>(who.attr.stack), bytes};
    } else if (bytes != 0) {
        options.stack_bytes = std::max(bytes, least);
    }
    detail::ult_core& core = bytes == 0 ? detail::prepare_ult(where, type, joinable)
                                        : detail::prepare_ult(where, type, joinable, options);
    ::new (detail::closure_of(&core)) body{&who};
    detail::guest_of(core) = &who;
    who.work = &detail::unit_of(core);
    if (joinable) {
        who.handle = ult(core);
        who.joins.store(join_stage::open, std::memory_order_release);
    }
    detail::start_ult(core);
}

ABT_thread_opaque& create_thread(const new_thread& what) {
    auto made = std::make_unique<ABT_thread_opaque>();
    made->id = next_id.fetch_add(1, std::memory_order_relaxed);
    made->kind = what.kind;
    made->named = what.named;
    made->function = what.function;
    made->arg = what.arg;
    if (what.attr != nullptr) made->attr = *what.attr;
    made->leaves_as = ABT_POOL_CONTEXT_OP_THREAD_CREATE;
    made->pool.store(what.pool, std::memory_order_relaxed);
    made->runs_next_on.store(what.runs_next_on, std::memory_order_relaxed);
    made->unit = what.pool == nullptr ? own_pool::own_unit(*made) : what.pool->create_unit(*made);
    ABT_thread_opaque& who = *made;
    if (what.made != nullptr) *what.made = &who;
    auto* const sched =
        what.kind == thread_kind::scheduler ? static_cast<ABT_sched_opaque*>(what.arg) : nullptr;
    if (sched != nullptr) sched->thread = &who;
    tell_tool(who, ABT_TOOL_EVENT_THREAD_CREATE);
    try {
        launch(who);
    } catch (...) {
        if (what.made != nullptr) *what.made = nullptr;
        if (sched != nullptr) sched->thread = nullptr;
        if (what.pool != nullptr) what.pool->free_unit(who.unit);
        throw;
    }
    made.release();
    return who;
}

void destroy_values(ABT_thread_opaque& who) noexcept {
    // A destructor may set others.
    while (!who.values.empty()) {
        const key_value last = who.values.back();
        who.values.pop_back();
        if (last.destroy == nullptr || last.value == nullptr) continue;
        called("an exception escaped from the destructor of a key",
               [&] { last.destroy(last.value); });
    }
}

void free_thread(ABT_thread_opaque& who) noexcept {
    tell_tool(who, ABT_TOOL_EVENT_THREAD_FREE);
    destroy_values(who);
    ABT_pool const where = who.pool.load(std::memory_order_relaxed);
    if (who.unit != own_pool::own_unit(who)) where->free_unit(who.unit);
    delete &who;
}

void associate(ABT_thread_opaque& who, ABT_pool pool) {
    ABT_pool const before = who.pool.load(std::memory_order_relaxed);
    if (before == pool) return;
    ABT_unit const unit = pool->create_unit(who);
    if (before != nullptr) before->free_unit(who.unit);
    who.unit = unit;
    who.pool.store(pool, std::memory_order_relaxed);
    if (who.work != nullptr && who.work->home() != nullptr) who.work->move_to(*pool);
}

bool migrate_if_asked(ABT_thread_opaque& who) {
    if (who.migrates_to.load(std::memory_order_relaxed) == nullptr) [[likely]]
        return false;
    ABT_pool const target = who.migrates_to.exchange(nullptr);
    if (target == nullptr) return false;
    try {
        associate(who, target);
    } catch (...) {
        return false;  // no unit for it there
    }
    if (who.attr.on_migration != nullptr) {
        called("an exception escaped from a migration callback",
               [&] { who.attr.on_migration(&who, who.attr.on_migration_arg); });
    }
    target->add(who, ABT_POOL_CONTEXT_OP_THREAD_MIGRATE);
    return true;
}

void end_if_canceled(ABT_thread_opaque& who) {
    if (who.canceled.load(std::memory_order_relaxed)) [[unlikely]]
        this_task::exit();
}

void leave_stream(ABT_thread_opaque& who) {
    ABT_xstream_opaque& here = *who.stream.load(std::memory_order_relaxed);
    // Its pool may be of a higher priority than the next one.
    here.requeue_first = here.main_sched->pools.size() > 1 && !here.has_handed_over();
    if (!who.is_primary()) return this_task::yield();
    // At the end of a batch Amalgam looks for the primary ULT first, so one yield may do nothing.
    const std::uint64_t before = here.runs;
    this_task::yield();
    if (here.runs == before) this_task::yield();
    while (here.has_handed_over())
        this_task::yield();
}

namespace {

/// The primary ULT stands in a pool of its own. In Argobots it would be the last one in the first
/// main pool, so what is there now runs before it goes on.
void yield_primary(ABT_thread_opaque& who, ABT_xstream_opaque& here) {
    const ABT_sched_opaque& sched = *here.main_sched;
    if (!sched.predefined() || sched.pools.empty() || here.has_handed_over())
        return leave_stream(who);
    const ABT_pool_opaque& first = *sched.pools.front();
    const std::uint64_t until = here.runs + first.size();
    do {
        leave_stream(who);
    } while (here.runs < until && !first.empty());
}

}  // namespace

void yield_as(ABT_thread_opaque& who, ABT_pool_context why) {
    who.leaves_as = why;
    tell_tool(who, ABT_TOOL_EVENT_THREAD_YIELD);
    if (who.is_primary()) {
        yield_primary(who, *who.stream.load(std::memory_order_relaxed));
    } else {
        leave_stream(who);
    }
    end_if_canceled(who);
}

void nursery::push(work_unit& unit) noexcept {
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) {
        strays_.push(unit);
        return notify();
    }
    if (ABT_pool const home = who->pool.load(std::memory_order_relaxed)) {
        unit.move_to(*home);
        return home->push(unit);
    }
    // The ULT of a main scheduler.
    pool& seat = static_cast<ABT_sched_opaque*>(who->arg)->main_of->seat();
    unit.move_to(seat);
    seat.push(unit);
}

}  // namespace amalgam::argobots
