#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include <amalgam/core/log.hpp>
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

void scheduler_ended(ABT_thread_opaque& who) noexcept {
    auto& sched = *static_cast<ABT_sched_opaque*>(who.arg);
    ABT_xstream_opaque* const of = sched.main_of;
    sched.thread = nullptr;
    sched.in_pool = false;
    free_thread(who);
    if (of != nullptr) return of->main_sched_ended();
    if (sched.automatic) free_sched(sched);
}

/// What a ULT of Amalgam runs for one of ours.
void run_ult(ABT_thread_opaque& who) noexcept {
    call_function(who);
    tell_tool(who, ABT_TOOL_EVENT_THREAD_FINISH);
    if (!who.named) destroy_values(who);  // which may wait
    detail::guest_of(*who.work) = nullptr;
    if (who.kind == thread_kind::scheduler) return scheduler_ended(who);
    if (!who.named) return free_thread(who);
    who.state.store(ABT_THREAD_STATE_TERMINATED, std::memory_order_release);
}

/// A ULT's closure is its own descriptor, which outlives its run,
constexpr detail::closure_type body_in_stack{
    [](void* closure) { run_ult(*static_cast<ABT_thread_opaque*>(closure)); },
    [](void*) noexcept {}, sizeof(ABT_thread_opaque), alignof(ABT_thread_opaque)};
static_assert(sizeof(ABT_thread_opaque) <= detail::inline_closure_bytes);

/// or leads to it, if the program may free the stack before the handle.
struct body {
    ABT_thread_opaque* who;
    void operator()() const noexcept { run_ult(*who); }
};
constexpr const detail::closure_type& body_apart = detail::inline_closure<body>::type;

/// Amalgam refuses to create one in a pool that nobody serves yet.
pool& birthplace(ABT_pool wanted) noexcept {
    return wanted != nullptr && wanted->served() ? static_cast<pool&>(*wanted)
                                                 : runtime::get()->newborn();
}

ult_options options_of(const ABT_thread_attr_opaque* attr, bool joinable) noexcept {
    std::size_t bytes = attr == nullptr ? 0 : attr->stack_bytes;
    if (bytes == 0) bytes = runtime::get()->default_stack_bytes();
    constexpr std::size_t least = 16 * 1024, least_given = 20 * 1024;
    ult_options options;
    if (attr != nullptr && attr->stack != nullptr && bytes >= least_given && joinable) {
        options.stack = {static_cast<std::byte*>(attr->stack), bytes};
    } else if (bytes != 0) {
        options.stack_bytes = std::max(bytes, least);
    }
    return options;
}

bool joinable(const new_thread& what) noexcept {
    return what.named && what.kind != thread_kind::scheduler;
}

ABT_thread_opaque& make_in_stack(detail::ult_core& core) noexcept {
    auto* const who = ::new (detail::closure_of(&core)) ABT_thread_opaque;
    who->where = kept_in::stack;
    return *who;
}

ABT_thread_opaque& make_on_given_stack(pool& where, const ult_options& options,
                                       detail::ult_core*& core) {
    auto who = std::make_unique<ABT_thread_opaque>();
    core = &detail::prepare_ult(where, body_apart, true, options);
    ::new (detail::closure_of(core)) body{who.get()};
    return *who.release();
}

ABT_thread_opaque& make_ult(const new_thread& what, detail::ult_core*& core) {
    pool& where = birthplace(what.pool);
    if (what.attr == nullptr && runtime::get()->default_stack_bytes() == 0) [[likely]] {
        core = &detail::prepare_ult(where, body_in_stack, joinable(what));
        return make_in_stack(*core);
    }
    const ult_options options = options_of(what.attr, joinable(what));
    if (!options.stack.empty()) return make_on_given_stack(where, options, core);
    core = &detail::prepare_ult(where, body_in_stack, joinable(what), options);
    return make_in_stack(*core);
}

void destroy_made(ABT_thread_opaque& who, detail::ult_core* core) noexcept {
    switch (who.where) {
        case kept_in::heap:
            delete &who;
            break;
        case kept_in::stack:
            std::destroy_at(&who);
            break;
        case kept_in::block:
            return tasklet_thread::free(static_cast<tasklet_thread&>(who));
    }
    detail::drop_ult(*core);
}

void describe(ABT_thread_opaque& who, const new_thread& what) {
    who.kind = what.kind;
    who.named = what.named;
    who.function = what.function;
    who.arg = what.arg;
    if (what.attr != nullptr) who.attr = *what.attr;
    who.leaves_as = ABT_POOL_CONTEXT_OP_THREAD_CREATE;
    who.pool.store(what.pool, std::memory_order_relaxed);
    who.runs_next_on.store(what.runs_next_on, std::memory_order_relaxed);
    const bool known_by_address = what.pool == nullptr || what.pool->own != nullptr;
    who.unit = known_by_address ? own_pool::own_unit(who) : what.pool->create_unit(who);
}

void start(ABT_thread_opaque& who, detail::ult_core& core) noexcept {
    who.work = &detail::unit_of(core);
    detail::guest_of(core) = &who;
    if (who.named && who.kind != thread_kind::scheduler) {
        who.handle = ult(core);
        who.joins.store(join_stage::open, std::memory_order_release);
    }
    // What else start_ult() would do: find out who this is.
    ABT_pool const home = who.pool.load(std::memory_order_relaxed);
    if (home == nullptr || who.work->home() != home) return detail::start_ult(core);
    detail::start_ult_unpushed(core);
    home->make_ready(who);
}

void give_stack_back(ult& ended) noexcept {
    try {
        ended.join();
    } catch (const std::exception& thrown) {
        log(log_level::error, "argobots", "a ULT did not run to its end",
            {{"what", thrown.what()}});
    }
}

}  // namespace

ABT_thread_opaque* thread_of(work_unit& unit) noexcept {
    return static_cast<ABT_thread_opaque*>(detail::guest_or_null(unit));
}

std::uint64_t id_of(ABT_thread_opaque& who) noexcept {
    std::uint64_t seen = who.id.load(std::memory_order_relaxed);
    if (seen != 0) return seen;
    const std::uint64_t mine = next_id.fetch_add(1, std::memory_order_relaxed);
    return who.id.compare_exchange_strong(seen, mine) ? mine : seen;
}

void call_function(ABT_thread_opaque& who) noexcept {
    try {
        if (!who.canceled.load(std::memory_order_acquire)) who.function(who.arg);
    } catch (const detail::exit_ult&) {
    } catch (...) {
        log_escaped("an exception escaped from a ULT's function");
    }
}

bool has_ended(ABT_thread_opaque& who) noexcept {
    if (who.is_tasklet()) return static_cast<tasklet_thread&>(who).has_ended();
    const detail::ult_core* const core = detail::core_of(who.handle);
    return core == nullptr || detail::has_ended(*core);
}

ABT_thread_opaque& create_thread(const new_thread& what) {
    detail::ult_core* core = nullptr;
    ABT_thread_opaque& who =
        what.kind == thread_kind::tasklet ? tasklet_thread::make() : make_ult(what, core);
    try {
        describe(who, what);
    } catch (...) {
        destroy_made(who, core);
        throw;
    }
    if (what.made != nullptr) *what.made = &who;
    if (what.kind == thread_kind::scheduler)
        static_cast<ABT_sched_opaque*>(what.arg)->thread = &who;
    tell_tool(who, ABT_TOOL_EVENT_THREAD_CREATE);
    if (core == nullptr) {
        if (what.named) who.joins.store(join_stage::open, std::memory_order_relaxed);
        what.pool->make_ready(who);
        return who;
    }
    start(who, *core);
    return who;
}

void relaunch(ABT_thread_opaque& who) {
    ABT_pool const home = who.pool.load(std::memory_order_relaxed);
    if (who.is_tasklet()) {
        static_cast<tasklet_thread&>(who).end.store(0, std::memory_order_relaxed);
        who.joins.store(join_stage::open, std::memory_order_release);
        return home->make_ready(who);
    }
    pool& where = birthplace(home);
    if (who.where == kept_in::heap) {
        if (who.handle.joinable()) give_stack_back(who.handle);
        detail::ult_core& core =
            detail::prepare_ult(where, body_apart, true, options_of(&who.attr, true));
        ::new (detail::closure_of(&core)) body{&who};
        return start(who, core);
    }
    detail::ult_core& core = *detail::core_of(who.handle);
    detail::check_revivable(&core, where);
    detail::guest_of(core) = &who;
    who.joins.store(join_stage::open, std::memory_order_release);
    detail::restart_ult(core, where, body_in_stack);
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
    if (who.where == kept_in::block) return tasklet_thread::free(static_cast<tasklet_thread&>(who));
    ult last = std::move(who.handle);  // whose stack may be where the descriptor is
    who.where == kept_in::stack ? std::destroy_at(&who) : delete &who;
    if (last.joinable()) give_stack_back(last);
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

bool migrate_asked(ABT_thread_opaque& who) {
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
    ABT_xstream_opaque& here = *who.stream.load(std::memory_order_relaxed);
    if (!here.leave_directly(who)) who.is_primary() ? yield_primary(who, here) : leave_stream(who);
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
