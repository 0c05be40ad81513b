#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/extension/direct_yield.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/ult.hpp>

#include "runtime.hpp"
#include "scheduling/own_pool.hpp"
#include "tool.hpp"
#include "units/blocked.hpp"

// What all pools have in common, and those of ours.

namespace {

std::atomic<int> next_pool_id{0};

template <typename Handle>
struct printer {
    void (*print)(void* arg, Handle);
    void* arg;
};

}  // namespace

ABT_pool_opaque::ABT_pool_opaque(ABT_pool_access how, bool automatically) noexcept
    : pool(amalgam::pool_access::any_stream),
      access_kind(how),
      automatic(automatically),
      id(next_pool_id.fetch_add(1, std::memory_order_relaxed)) {}

amalgam::work_unit* ABT_pool_opaque::pop() noexcept {
    for (;;) {
        thread* const who = take(0);
        if (who == nullptr) return nullptr;
        if (who->is_counted()) return who->work;
        amalgam::argobots::end_left(*who);
    }
}

ABT_pool_opaque::thread* ABT_pool_opaque::take_wait(double seconds, ABT_pool_context why) {
    using namespace std::chrono;
    const auto until =
        amalgam::detail::deadline_after(duration<double>(seconds), steady_clock::now());
    for (;;) {
        thread* const who = take(why);
        if (who != nullptr || amalgam::argobots::between_ults::here()) return who;
        if (steady_clock::now() >= until) return nullptr;
        const amalgam::argobots::blocked while_waiting;
        amalgam::this_task::sleep_for(microseconds(50));
    }
}

std::size_t ABT_pool_opaque::take_many(thread** to, std::size_t most, ABT_pool_context why) {
    std::size_t number = 0;
    while (number < most && (to[number] = take(why)) != nullptr)
        ++number;
    return number;
}

void ABT_pool_opaque::add_many(thread* const* which, std::size_t number, ABT_pool_context why) {
    for (std::size_t i = 0; i < number; ++i) {
        if (which[i] != nullptr) add(*which[i], why);
    }
}

void ABT_pool_opaque::print_threads(void* arg, void (*print)(void* arg, ABT_thread)) {
    printer<ABT_thread> each{print, arg};
    for_each(
        [](void* what, thread& who) {
            const auto& to = *static_cast<printer<ABT_thread>*>(what);
            to.print(to.arg, &who);
        },
        &each);
}

void ABT_pool_opaque::print_units(void* arg, void (*print)(void* arg, ABT_unit)) {
    printer<ABT_unit> each{print, arg};
    for_each(
        [](void* what, thread& who) {
            const auto& to = *static_cast<printer<ABT_unit>*>(what);
            to.print(to.arg, who.unit());
        },
        &each);
}

bool ABT_pool_opaque::looks_done() const noexcept {
    return empty() && (schedulers.load() > 1 || ults() == 0);
}

bool ABT_pool_opaque::is_done() noexcept {
    if (!looks_done()) return false;
    if (schedulers.load() > 1) return true;
    int nobody = 0;
    if (!holders.compare_exchange_strong(nobody, closed) && nobody != closed) return false;
    // Again: one may have come before it was closed, or a scheduler.
    if (looks_done() && schedulers.load() <= 1) return true;
    open();
    return false;
}

void ABT_pool_opaque::open() noexcept {
    int seen = closed;
    holders.compare_exchange_strong(seen, 0);
}

bool ABT_pool_opaque::let_one_come() noexcept {
    int seen = holders.load();
    while (seen != closed && !holders.compare_exchange_weak(seen, seen + 1)) {
    }
    return seen != closed;
}

void ABT_pool_opaque::turn_away() noexcept {
    using amalgam::argobots::runtime;
    if (is_goal.load() && runtime::get() != nullptr) runtime::get()->forget_goal(*this);
}

namespace amalgam::argobots {

own_pool::~own_pool() {
    turn_away();
    drop_left();
    for (void* each = spares_.load(std::memory_order_relaxed); each != nullptr;) {
        void* const next = *static_cast<void**>(each);
        detail::free_block(each, sizeof(thread));
        each = next;
    }
}

[[gnu::noinline]] void own_pool::let_in_visitor() const noexcept {
    constexpr unsigned most_visits = 16;
    others_.store(true, std::memory_order_relaxed);
    detail::barrier_on_all_threads();
    while (own_in_.load(std::memory_order_acquire))
        detail::cpu_relax();
    if (++visits_ == most_visits) biased_ = false;  // and `others_` stays
}

// With the lock: see pool::empty().
bool own_pool::empty() const noexcept {
    const locked hold(*this);
    return head_ == nullptr;
}

void own_pool::put(thread& who, ABT_pool_context why) noexcept {
    put_in_line(who, why);
}

void own_pool::put_new_slowly(thread& who) noexcept {
    put_in_line<true>(who, who.leaves_as);
}

own_pool::thread* own_pool::take(ABT_pool_context why) {
    return take_in_line(why);
}

/// Whether it has begun, and stays in its pool.
static bool may_rotate_to(const ABT_thread_opaque& next) noexcept {
    return next.is_counted() && !next.wants_to_move();
}

/// From `who`, which stands in here again. False: it has been taken out, and goes on.
[[gnu::always_inline]] inline bool own_pool::yield_within(thread& who, thread& next) noexcept {
    ABT_xstream_opaque& here = *who.stream.load(std::memory_order_relaxed);
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_relaxed);
    here.note_begun(next);
    if (detail::yield_directly_holding(*next.work, own_in_)) return true;
    --here.runs;
    who.state.store(ABT_THREAD_STATE_RUNNING, std::memory_order_relaxed);
    next.state.store(ABT_THREAD_STATE_READY, std::memory_order_relaxed);
    unlink(who);
    return false;
}

bool own_pool::rotate(thread& who) noexcept {
    if (has_other_servers() || !enter_quickly()) return false;
    thread* const next = head_;
    if (next != nullptr && may_rotate_to(*next)) {
        put_last_for_first(who, *next);
        __builtin_prefetch(head_->work);  // for who comes after it
        if (yield_within(who, *next)) return true;
        prepend(*next);
    }
    own_in_.store(false, std::memory_order_release);
    return false;
}

bool own_pool::rotate(thread& who, thread& next) noexcept {
    if (has_other_servers() || !enter_quickly()) return false;
    if (may_rotate_to(next)) {
        if (head_ != nullptr) __builtin_prefetch(head_->work);
        append(who);
        if (yield_within(who, next)) return true;
    }
    own_in_.store(false, std::memory_order_release);
    return false;
}

bool own_pool::note_joiner(thread& who, joiner& one, bool only_one) noexcept {
    const locked hold(*this);
    if (who.listed_in.load(std::memory_order_relaxed) != this) return false;
    if (!only_one || who.end.load(std::memory_order_relaxed) != 0) return who.add_joiner(one);
    who.end.store(reinterpret_cast<std::uintptr_t>(&one), std::memory_order_relaxed);
    return true;
}

bool own_pool::remove_thread(thread& who) {
    const locked hold(*this);
    if (who.listed_in.load(std::memory_order_relaxed) != this) return false;
    unlink(who);
    return true;
}

void own_pool::for_each(void (*show)(void* arg, thread& who), void* arg) {
    const locked hold(*this);
    for (thread* each = head_; each != nullptr; each = each->next)
        show(arg, *each);
}

}  // namespace amalgam::argobots

void ABT_pool_opaque::add(thread& who, ABT_pool_context why) noexcept {
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_release);
    own != nullptr ? own->put_in_line(who, why) : put(who, why);
}

[[gnu::always_inline]] inline void ABT_pool_opaque::make_ready_in_line(thread& who) noexcept {
    using namespace amalgam::argobots;
    if (who.state.load(std::memory_order_relaxed) == ABT_THREAD_STATE_BLOCKED)
        who.leaves_as = ABT_POOL_CONTEXT_OP_THREAD_RESUME;
    tell_tool_ready(who);
    if (ABT_xstream_opaque* const direct = who.runs_next_on.load(std::memory_order_relaxed)) {
        who.runs_next_on.store(nullptr, std::memory_order_relaxed);
        // It may have ended, unless it runs the caller.
        const thread* const caller = self();
        if (caller != nullptr && caller->stream.load(std::memory_order_relaxed) == direct)
            return direct->hand_over_to(who);
    }
    if (migrate_if_asked(who)) return;
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_release);
    own != nullptr ? own->put_in_line(who, who.leaves_as) : put(who, who.leaves_as);
}

void ABT_pool_opaque::make_ready(thread& who) noexcept {
    make_ready_in_line(who);
}

void ABT_pool_opaque::make_new_ready(thread& who) noexcept {
    const bool elsewhere =
        who.runs_next_on.load(std::memory_order_relaxed) != nullptr || who.wants_to_move();
    if (own == nullptr || elsewhere) return make_ready_in_line(who);
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_relaxed);
    own->put_new(who);
}

// Of a new ULT, or one that waited.
void ABT_pool_opaque::push(amalgam::work_unit& unit) noexcept {
    using namespace amalgam::argobots;
    thread* const who = thread_of(unit);
    if (who != nullptr) return make_ready_in_line(*who);
    pool& strays = runtime::get()->newborn();
    unit.move_to(strays);
    strays.push(unit);
}

void ABT_pool_opaque::requeue(amalgam::work_unit& unit) noexcept {
    thread* const who = amalgam::argobots::thread_of(unit);
    if (who == nullptr) return push(unit);
    if (!who->calling) make_ready_in_line(*who);
}
