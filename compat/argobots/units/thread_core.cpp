#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/run_another.hpp>
#include <amalgam/tasks/extension/small_block.hpp>

#include "callback.hpp"
#include "runtime.hpp"
#include "scheduling/own_pool.hpp"
#include "tool.hpp"

// The life of a ULT: created, launched, ended, launched again, freed.

namespace amalgam::argobots {

namespace {

std::atomic<std::uint64_t> next_id{1};
thread_local bool is_between_ults = false;

// Not inlined, as a switch may change the thread.
[[gnu::noinline]] bool exchange_between_ults(bool now) noexcept {
    asm volatile("");
    return std::exchange(is_between_ults, now);
}

void scheduler_ended(ABT_thread_opaque& who) noexcept {
    auto& sched = *static_cast<ABT_sched_opaque*>(who.arg);
    ABT_xstream_opaque* const of = sched.main_of;
    sched.thread = nullptr;
    sched.in_pool = false;
    free_thread(who);
    if (of != nullptr) return of->main_sched_ended();
    if (sched.automatic) free_sched(sched);
}

void run_function(ABT_thread_opaque& who) noexcept {
    call_function(who);
    tell_tool(who, ABT_TOOL_EVENT_THREAD_FINISH);
    if (!who.named && who.rare.load(std::memory_order_acquire) != nullptr)
        destroy_values(who);  // which may wait
}

// An exchange takes as long as the rest of a short life. So the stream of a private pool reads and
// writes in two steps, which it announces: as join_state of Amalgam.
[[gnu::always_inline]] inline bool told_quickly(ABT_thread_opaque& who) noexcept {
    if (!who.ends_quickly.load(std::memory_order_relaxed)) return false;
    auto& announced = who.stream.load(std::memory_order_relaxed)->ending;
    announced.store(&who, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool unseen = who.end.load(std::memory_order_acquire) == 0;
    if (unseen) who.end.store(ABT_thread_opaque::ended_alone_mark, std::memory_order_release);
    announced.store(nullptr, std::memory_order_release);
    return unseen;
}

[[gnu::always_inline]] inline void end_named(ABT_thread_opaque& who) noexcept {
    who.work = nullptr;
    who.state.store(ABT_THREAD_STATE_TERMINATED, std::memory_order_release);
    if (!told_quickly(who) && !who.on_given_stack) who.tell_end();
}

[[gnu::always_inline]] inline void end_in_line(ABT_thread_opaque& who,
                                               spare_descriptor& spare) noexcept {
    who.named ? end_named(who) : spare.take(who);
}

void run_alone(ABT_thread_opaque& who) noexcept {
    run_function(who);
    detail::guest_of(*who.work) = nullptr;
    detail::leave_pool_at_end();
    who.kind == thread_kind::scheduler ? scheduler_ended(who) : end_thread(who);
}

/// As long as each ends as it began, the next one follows on the same stack.
void run_in_turn(ABT_thread_opaque* now) noexcept {
    work_unit& unit = *now->work;
    void*& guest = detail::guest_of(unit);
    spare_descriptor spare;
    for (;;) {
        run_function(*now);
        // Chosen first: the pool may end with the last that was in it.
        ABT_xstream_opaque& here = *now->stream.load(std::memory_order_relaxed);
        ABT_thread_opaque* const next = here.next_in_place(false, spare.memory());
        guest = next;
        if (next == nullptr) {
            detail::leave_pool_at_end();
            return end_thread(*now);
        }
        next->work = &unit;
        ABT_pool const home = next->pool.load(std::memory_order_relaxed);
        if (unit.home() != home) unit.move_to(*home);
        end_in_line(*now, spare);
        now = next;
    }
}

/// The closure of a ULT of Amalgam, which leads to one of ours.
struct closure {
    ABT_thread_opaque* who;
    static ABT_thread_opaque& of(void* place) noexcept {
        return *static_cast<closure*>(place)->who;
    }
    static void forget(void*) noexcept {}
};
/// For one that has its stack from the beginning,
constexpr detail::closure_type alone{[](void* place) { run_alone(closure::of(place)); },
                                     &closure::forget, sizeof(closure), alignof(closure)};
/// and for one that gets it when it begins.
constexpr detail::closure_type in_turn{[](void* place) { run_in_turn(&closure::of(place)); },
                                       &closure::forget, sizeof(closure), alignof(closure)};

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

/// Throws std::bad_alloc.
ABT_thread_opaque& make_thread(thread_kind kind, void (*function)(void*), void* arg, ABT_pool pool,
                               bool named) {
    void* const place = detail::allocate_block(sizeof(ABT_thread_opaque));
    return *::new (place) ABT_thread_opaque(kind, function, arg, pool, named);
}

void destroy_thread(ABT_thread_opaque& who) noexcept {
    std::destroy_at(&who);
    detail::free_block(&who, sizeof who);
}

/// Whether it gets one of the usual stacks, when it begins.
bool is_usual(const new_thread& what) noexcept {
    return (what.attr == nullptr || (what.attr->stack == nullptr && what.attr->stack_bytes == 0)) &&
           what.kind == thread_kind::ult && runtime::get()->default_stack_bytes() == 0;
}

/// For one that is not.
detail::ult_core& make_stack(const new_thread& what, ABT_thread_opaque& who) {
    const bool joinable = what.named && what.kind != thread_kind::scheduler;
    const ult_options options = options_of(what.attr, joinable);
    constexpr std::size_t most = SIZE_MAX / 4;  // beyond which Amalgam has other words for it
    if (options.stack_bytes > most) throw std::bad_alloc();
    who.on_given_stack = !options.stack.empty();
    if (who.on_given_stack) who.rare_part();  // for start(), which must not throw
    detail::ult_core& core =
        detail::prepare_ult(birthplace(what.pool), alone, who.on_given_stack, options);
    ::new (detail::closure_of(&core)) closure{&who};
    return core;
}

void describe(ABT_thread_opaque& who, const new_thread& what) {
    if (what.attr != nullptr) who.rare_part().attr = *what.attr;
    who.runs_next_on.store(what.runs_next_on, std::memory_order_relaxed);
    if (what.pool == nullptr || what.pool->own != nullptr) return;
    who.rare_part();  // here nothing has to be undone
    who.set_unit(what.pool->create_unit(who));
}

void start(ABT_thread_opaque& who, detail::ult_core& core) noexcept {
    who.work = &detail::unit_of(core);
    detail::guest_of(core) = &who;
    if (who.on_given_stack) who.rare_part().handle = ult(core);
    // What else start_ult() would do: find out who this is.
    ABT_pool const home = who.pool.load(std::memory_order_relaxed);
    if (home == nullptr || who.work->home() != home) return detail::start_ult(core);
    detail::start_ult_unpushed(core);
    home->make_ready(who);
}

void begin_on(ABT_thread_opaque& who, detail::ult_core& core) noexcept {
    ::new (detail::closure_of(&core)) closure{&who};
    who.work = &detail::unit_of(core);
    detail::guest_of(core) = &who;
    detail::start_ult_unpushed(core);
}

void give_stack_back(ult& ended) noexcept {
    try {
        if (ended.joinable()) ended.join();
    } catch (const std::exception& thrown) {
        log(log_level::error, "argobots", "a ULT did not run to its end",
            {{"what", thrown.what()}});
    }
}

}  // namespace

between_ults::between_ults() noexcept : before_(exchange_between_ults(true)) {}

between_ults::~between_ults() {
    exchange_between_ults(before_);
}

[[gnu::noinline]] bool between_ults::here() noexcept {
    asm volatile("");
    return is_between_ults;
}

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

static void free_all_but_memory(ABT_thread_opaque& who) noexcept;

void end_thread(ABT_thread_opaque& who) noexcept {
    who.named ? end_named(who) : free_thread(who);
}

void spare_descriptor::free() noexcept {
    if (memory_ != nullptr) detail::free_block(memory_, sizeof(ABT_thread_opaque));
}

void spare_descriptor::take(ABT_thread_opaque& who) noexcept {
    free();
    free_all_but_memory(who);
    memory_ = &who;
}

void end_left(ABT_thread_opaque& who) noexcept {
    if (who.kind == thread_kind::scheduler || who.on_given_stack) return;
    who.ends_quickly = false;
    who.named ? who.tell_end() : free_thread(who);
}

bool give_stack_quickly(ABT_thread_opaque& who) noexcept {
    ABT_pool const home = who.pool.load(std::memory_order_relaxed);
    detail::ult_core* const core = detail::prepare_ult_quickly(*home, in_turn, false);
    if (core == nullptr) return false;
    begin_on(who, *core);
    return true;
}

bool give_stack(ABT_thread_opaque& who, bool tell) noexcept {
    try {
        ABT_pool const home = who.pool.load(std::memory_order_relaxed);
        begin_on(who, detail::prepare_ult(birthplace(home), in_turn, false));
        who.work->move_to(*home);
        return true;
    } catch (const std::exception& thrown) {
        if (tell) {
            limited_log(log_level::error, "argobots",
                        "a ULT waits to begin, as there is no memory for its stack",
                        {{"what", thrown.what()}});
        }
        return false;
    }
}

ABT_thread_opaque& create_thread(const new_thread& what) {
    ABT_thread_opaque& who = make_thread(what.kind, what.function, what.arg, what.pool, what.named);
    detail::ult_core* core = nullptr;
    try {
        if (what.kind != thread_kind::tasklet && !is_usual(what)) core = &make_stack(what, who);
        describe(who, what);
    } catch (...) {
        destroy_thread(who);
        if (core != nullptr) detail::drop_ult(*core);
        throw;
    }
    if (what.made != nullptr) *what.made = &who;
    if (what.kind == thread_kind::scheduler)
        static_cast<ABT_sched_opaque*>(what.arg)->thread = &who;
    tell_tool(who, ABT_TOOL_EVENT_THREAD_CREATE);
    core == nullptr ? what.pool->make_new_ready(who) : start(who, *core);
    return who;
}

template <bool named>
[[gnu::always_inline]] static inline int create_in(own_pool& where, void (*function)(void*),
                                                   void* arg, ABT_thread* made,
                                                   thread_kind kind) noexcept {
    try {
        ABT_thread_opaque& who = make_thread(kind, function, arg, &where, named);
        if constexpr (named) *made = &who;
        tell_tool(who, ABT_TOOL_EVENT_THREAD_CREATE);
        where.put_new(who);
        return ABT_SUCCESS;
    } catch (const std::bad_alloc&) {
        return ABT_ERR_MEM;
    }
}

// Two functions, so that each saves only the registers that it needs.
[[gnu::noinline]] int create_named(own_pool& where, void (*function)(void*), void* arg,
                                   ABT_thread& made, thread_kind kind) noexcept {
    return create_in<true>(where, function, arg, &made, kind);
}

[[gnu::noinline]] int create_unnamed(own_pool& where, void (*function)(void*), void* arg,
                                     thread_kind kind) noexcept {
    // Named ones leave no spare memory. A tool is not told in there.
    const auto make = [&](void* place) noexcept -> ABT_thread_opaque& {
        return *::new (place) ABT_thread_opaque(kind, function, arg, &where, false);
    };
    if (!has_tool() && where.put_anew(make)) return ABT_SUCCESS;
    return create_in<false>(where, function, arg, nullptr, kind);
}

void relaunch(ABT_thread_opaque& who) {
    ABT_pool const home = who.pool.load(std::memory_order_relaxed);
    if (who.on_given_stack) give_stack_back(who.rare_part().handle);
    ABT_thread_attr_opaque attr = who.attr();
    const new_thread what{
        .pool = home, .function = who.function, .arg = who.arg, .attr = &attr, .kind = who.kind};
    detail::ult_core* const core =
        who.is_tasklet() || is_usual(what) ? nullptr : &make_stack(what, who);
    who.end.store(0, std::memory_order_relaxed);
    who.joins.store(join_stage::open, std::memory_order_release);
    core == nullptr ? home->make_new_ready(who) : start(who, *core);
}

void destroy_values(ABT_thread_opaque& who) noexcept {
    rare_part* const more = who.rare.load(std::memory_order_acquire);
    if (more == nullptr) return;
    // A destructor may set others.
    while (!more->values.empty()) {
        const key_value last = more->values.back();
        more->values.pop_back();
        if (last.destroy == nullptr || last.value == nullptr) continue;
        called("an exception escaped from the destructor of a key",
               [&] { last.destroy(last.value); });
    }
}

[[gnu::always_inline]] static inline void free_all_but_memory(ABT_thread_opaque& who) noexcept {
    tell_tool(who, ABT_TOOL_EVENT_THREAD_FREE);
    if (rare_part* const more = who.rare.load(std::memory_order_acquire)) {
        destroy_values(who);
        ABT_pool const where = who.pool.load(std::memory_order_relaxed);
        if (more->unit != nullptr) where->free_unit(more->unit);
        give_stack_back(more->handle);
    }
    std::destroy_at(&who);
}

void free_thread(ABT_thread_opaque& who) noexcept {
    free_all_but_memory(who);
    detail::free_block(&who, sizeof who);
}

void associate(ABT_thread_opaque& who, ABT_pool pool) {
    ABT_pool const before = who.pool.load(std::memory_order_relaxed);
    if (before == pool) return;
    if (pool->own == nullptr) who.rare_part();  // here nothing has to be undone
    ABT_unit const unit = pool->create_unit(who);
    // A pool of ours has nothing to free, and may be gone since the unit ended in it.
    if (before != nullptr && who.unit() != who.own_unit()) before->free_unit(who.unit());
    who.set_unit(unit);
    who.pool.store(pool, std::memory_order_relaxed);
    if (who.work != nullptr && who.work->home() != nullptr) who.work->move_to(*pool);
}

bool migrate_asked(ABT_thread_opaque& who) {
    const held<ABT_pool_opaque> target =
        runtime::get()->hold_goal(who.migrates_to.exchange(ABT_thread_opaque::no_pool));
    if (target == nullptr) return false;
    try {
        associate(who, target.get());
    } catch (...) {
        return false;  // no unit for it there
    }
    const ABT_thread_attr_opaque attr = who.attr();
    if (attr.on_migration != nullptr) {
        const between_ults no_waits;
        called("an exception escaped from a migration callback",
               [&] { attr.on_migration(&who, attr.on_migration_arg); });
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
    here.let_run(std::max<std::size_t>(sched.pools.front()->size(), 1));
}

// Apart: in line, each yield would save the registers that this needs.
[[gnu::noinline]] void leave_by_loop(ABT_thread_opaque& who) {
    ABT_xstream_opaque& here = *who.stream.load(std::memory_order_relaxed);
    who.is_primary() ? yield_primary(who, here) : leave_stream(who);
}

}  // namespace

void let_queued_run(ABT_thread_opaque& primary, const ABT_thread_opaque& joined) {
    ABT_xstream_opaque& here = *primary.stream.load(std::memory_order_relaxed);
    const ABT_sched_opaque& sched = *here.main_sched;
    if (!sched.predefined() || sched.pools.empty() || here.has_handed_over()) return;
    if (joined.listed_in.load(std::memory_order_relaxed) == sched.pools.front())
        here.let_run(sched.pools.front()->size());
}

void yield_as(ABT_thread_opaque& who, std::uint32_t why) {
    who.leaves_as = why;
    tell_tool(who, ABT_TOOL_EVENT_THREAD_YIELD, {ABT_SYNC_EVENT_TYPE_USER});
    if (!who.stream.load(std::memory_order_relaxed)->leave_directly(who)) leave_by_loop(who);
    tell_tool_goes_on(who);
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

amalgam::argobots::rare_part& ABT_thread_opaque::rare_part() {
    amalgam::argobots::rare_part* seen = rare.load(std::memory_order_acquire);
    if (seen != nullptr) return *seen;
    auto made = std::make_unique<amalgam::argobots::rare_part>();
    return rare.compare_exchange_strong(seen, made.get()) ? *made.release() : *seen;
}

const ABT_thread_attr_opaque& ABT_thread_opaque::attr() const noexcept {
    static constexpr ABT_thread_attr_opaque usual;
    const amalgam::argobots::rare_part* const more = rare.load(std::memory_order_acquire);
    return more == nullptr ? usual : more->attr;
}

void ABT_thread_opaque::set_unit(ABT_unit to) {
    const bool own = to == own_unit();
    if (own && rare.load(std::memory_order_acquire) == nullptr) return;
    rare_part().unit = own ? nullptr : to;
}
