#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/extension/direct_yield.hpp>
#include <amalgam/tasks/extension/run_another.hpp>
#include <amalgam/tasks/ult.hpp>

#include "runtime.hpp"
#include "scheduling/own_pool.hpp"
#include "sync/sync.hpp"
#include "tool.hpp"

// How a stream chooses, and how it starts and ends.

namespace amalgam::argobots {

namespace {

/// How long a stream that can do nothing with the units in its pools leaves them alone.
constexpr std::chrono::milliseconds nap{1};

/// What a stream of Amalgam asks.
class stream_order final : public amalgam::scheduler {
public:
    stream_order(ABT_xstream_opaque& of, std::vector<pool*> pools) noexcept
        : of_(of), pools_(std::move(pools)) {}
    work_unit* next() noexcept override { return of_.next(); }
    std::span<pool* const> pools() const noexcept override { return pools_; }

private:
    ABT_xstream_opaque& of_;
    const std::vector<pool*> pools_;
};

}  // namespace

void scheduler_seat::push(work_unit& unit) noexcept {
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) {
        unit.move_to(runtime::get()->newborn());
        return runtime::get()->newborn().push(unit);
    }
    tell_tool_ready(*who);
    who->state.store(ABT_THREAD_STATE_READY, std::memory_order_release);
    ready_.store(&unit, std::memory_order_seq_cst);
    notify();
}

void on_own_stack::run_unit(work_unit& self) noexcept {
    auto& here = static_cast<on_own_stack&>(self);
    ABT_thread_opaque& who = *here.who;
    // Canceled, it calls nothing, and so ends as a tasklet does.
    if (who.is_tasklet() || who.canceled.load(std::memory_order_acquire)) return run_tasklets(who);
    if (here.gets_stack(who)) return who.work->run();
    here.rest_if_all_wait(who);
    who.pool.load(std::memory_order_relaxed)->add(who, ABT_POOL_CONTEXT_OP_THREAD_YIELD);
}

// The system takes its time to say no, so it is not asked for each of those that wait.
bool on_own_stack::gets_stack(ABT_thread_opaque& which) noexcept {
    using namespace std::chrono;
    constexpr steady_clock::time_point never{};
    if (asks_at_ != never && steady_clock::now() < asks_at_) return false;
    const bool told = told_at_ != never && steady_clock::now() - told_at_ < minutes(1);
    if (give_stack(which, !told)) {
        asks_at_ = never;
        return true;
    }
    const auto now = steady_clock::now();
    if (!told) told_at_ = now;
    asks_at_ = now + milliseconds(10);
    return false;
}

/// What else is ready has had its turn by now.
void on_own_stack::rest_if_all_wait(const ABT_thread_opaque& which) noexcept {
    const std::uint64_t now = which.stream.load(std::memory_order_relaxed)->runs;
    refused_in_turn_ = now == refused_at_ + 1 ? refused_in_turn_ + 1 : 1;
    refused_at_ = now;
    constexpr std::size_t least = 64;  // pools of the program's functions may not tell their size
    if (refused_in_turn_ <= std::max(least, which.pool.load(std::memory_order_relaxed)->size()))
        return;
    refused_in_turn_ = 0;
    std::this_thread::sleep_for(nap);
}

void scheduler_seat::requeue(work_unit& unit) noexcept {
    const ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr || !who->calling) push(unit);
}

}  // namespace amalgam::argobots

using namespace amalgam::argobots;

std::unique_ptr<amalgam::scheduler> ABT_xstream_opaque::make_order() {
    for (ABT_pool each : main_sched->order)
        each->open();  // it may have been another stream's, which has ended
    // The first is the main one, whose ULTs are counted without an atomic operation.
    std::vector<amalgam::pool*> pools(main_sched->order.begin(), main_sched->order.end());
    pools.push_back(&seat_);
    pools.push_back(&anchor_);
    if (primary) pools.push_back(&runtime::get()->newborn());
    return std::make_unique<stream_order>(*this, std::move(pools));
}

void ABT_xstream_opaque::wake() noexcept {
    const std::lock_guard hold(thread_lock_);
    if (stream != nullptr) stream->wake();
}

void ABT_xstream_opaque::replace_stream(std::unique_ptr<amalgam::execution_stream> by) noexcept {
    const std::lock_guard hold(thread_lock_);
    stream.swap(by);
}

void ABT_xstream_opaque::start() {
    join_asked = exit_asked = main_ended_ = false;
    main_sched->exit_asked = main_sched->finish_asked = false;
    ordinary = false;
    end_.reset();
    state = ABT_XSTREAM_STATE_RUNNING;
    try {
        start_stream();
        launch_main_sched();
    } catch (...) {
        replace_stream(nullptr);  // it may run, and looks at its scheduler
        forget_thread();
        end_.set();
        state = ABT_XSTREAM_STATE_TERMINATED;
        throw;
    }
}

void ABT_xstream_opaque::start_stream() {
    replace_stream(nullptr);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &signals_);
    amalgam::execution_stream_options options;
    options.name = primary ? "abt primary" : "abt " + std::to_string(rank.load());
    options.primary = primary;
    try {
        replace_stream(std::make_unique<amalgam::execution_stream>(make_order(), options));
    } catch (const amalgam::error& why) {
        if (why.code().native == EAGAIN) throw failure{ABT_ERR_SYS};  // the system's limit
        throw;
    }
    if (primary) note_thread();
}

void ABT_xstream_opaque::launch_main_sched() {
    if (main_sched->predefined()) return;
    create_thread({.pool = nullptr,
                   .function = &run_sched,
                   .arg = main_sched,
                   .kind = thread_kind::scheduler,
                   .named = false});
}

void ABT_xstream_opaque::main_sched_ended() noexcept {
    if (replacing_) {
        replaced_.set();
    } else {
        main_ended_ = true;
    }
}

// Its pools may never be looked at again, so it runs what is in them first.
void ABT_xstream_opaque::end_main_sched(const ABT_sched_opaque& next_one) {
    replaced_.reset();
    replacing_ = true;
    main_sched->replaced_by = &next_one;
    const bool has_ult = main_sched->thread != nullptr;
    if (!has_ult && main_sched->has_to_stop()) return;
    blocked while_waiting;
    // Looks again: ULTs of its pools may end on other streams, which nothing tells this one.
    while (!replaced_.wait_for(std::chrono::milliseconds(1))) {
        stream->wake();
        while_waiting.again();
    }
}

void ABT_xstream_opaque::set_main_sched(ABT_sched_opaque& next_one) {
    ABT_thread_opaque* const caller = ended() ? nullptr : self();
    if (caller != nullptr) {
        associate(*caller, next_one.pools.front());  // throws before anything has changed
        // Meanwhile the caller is where this stream looks whatever its scheduler is.
        associate(*caller, &anchor_);
    }
    const locked_by_caller hold(changing_);
    if (caller != nullptr) end_main_sched(next_one);
    ABT_sched_opaque& before = runtime::get()->replace_main_sched(*this, next_one);
    ordinary = false;
    next_one.main_of = this;
    before.main_of = nullptr;
    before.replaced_by = nullptr;
    before.exit_asked = false;
    if (caller != nullptr) {
        {
            const blocked while_waiting;
            stream->set_scheduler(make_order());
        }
        const int error = guarded([&] {
            associate(*caller, next_one.pools.front());
            return ABT_SUCCESS;
        });
        if (error != ABT_SUCCESS) {
            log(amalgam::log_level::warn, "argobots",
                "the ULT that replaced a scheduler stays in a pool of its stream's own, as the "
                "scheduler's first pool had a unit for it before, but now has none");
        }
        launch_main_sched();
    }
    replacing_ = false;
    if (before.automatic) free_sched(before);
}

void ABT_xstream_opaque::join() {
    runtime::refuse_in_child();
    join_asked = true;
    stream->wake();
    blocked while_waiting({ABT_SYNC_EVENT_TYPE_XSTREAM_JOIN, this});
    // Looks again: ULTs of its pools may end on other streams, which nothing tells this one.
    while (!end_.wait_for(std::chrono::milliseconds(1))) {
        stream->wake();
        while_waiting.again();
    }
    while_waiting.again();
    forget_thread();
    stream->stop();
    state = ABT_XSTREAM_STATE_TERMINATED;
}

void ABT_xstream_opaque::hand_over_to(ABT_thread_opaque& who) noexcept {
    who.state.store(ABT_THREAD_STATE_READY, std::memory_order_release);
    who.next = nullptr;
    (handed_first_ == nullptr ? handed_first_ : handed_last_->next) = &who;
    handed_last_ = &who;
}

ABT_thread_opaque* ABT_xstream_opaque::pick() noexcept {
    if (ABT_thread_opaque* const who = handed_first_) {
        handed_first_ = who->next;
        return who;
    }
    ordinary = false;
    if (!calling.empty()) {
        ABT_thread_opaque* const who = calling.back();
        calling.pop_back();
        who->calling = false;
        return who;
    }
    if (ABT_thread_opaque* const who = anchor_.take(0)) return who;
    if (main_sched->thread != nullptr) {
        amalgam::work_unit* const seated = seat_.pop();
        return seated == nullptr ? nullptr : thread_of(*seated);
    }
    if (main_sched->has_to_exit()) return nullptr;
    if (main_ended_.load(std::memory_order_relaxed)) return nullptr;
    // A user's own has not begun yet, or has ended for another one.
    if (!main_sched->predefined()) return nullptr;
    ordinary = true;
    ABT_thread_opaque* who = main_sched->choose();
    while (who != nullptr && migrate_if_asked(*who))
        who = main_sched->choose();
    return who;
}

[[gnu::always_inline]] inline amalgam::work_unit* ABT_xstream_opaque::begin(
    ABT_thread_opaque& who) noexcept {
    note_begun(who);
    if (who.work != nullptr || (!who.is_tasklet() && give_stack_quickly(who))) return who.work;
    on_own_stack_.who = &who;
    return &on_own_stack_;
}

/// What choose() would return, if that is a tasklet, or else a ULT without a stack, and nothing was
/// asked of it. Null: it is not, or that is not known.
[[gnu::always_inline]] static inline ABT_thread_opaque* choose_in_place(
    const ABT_sched_opaque& sched, bool tasklet, void*& spare) noexcept {
    for (ABT_pool each : sched.order) {
        if (each->own == nullptr) return nullptr;
        if (each->own->size() == 0 && sched.kind != ABT_SCHED_RANDWS) continue;
        return each->own->take_if(
            [tasklet](const ABT_thread_opaque& who) {
                return who.is_tasklet() == tasklet && !who.is_counted() && !who.wants_to_move();
            },
            spare);
    }
    return nullptr;
}

ABT_thread_opaque* ABT_xstream_opaque::next_in_place(bool tasklet, void*& spare) noexcept {
    if (!ordinary || handed_first_ != nullptr || requeue_first || time_to_look()) return nullptr;
    if (!amalgam::detail::may_run_another()) return nullptr;
    ABT_thread_opaque* const who = choose_in_place(*main_sched, tasklet, spare);
    if (who != nullptr) note_begun(*who);
    return who;
}

amalgam::work_unit* ABT_xstream_opaque::next() noexcept {
    if (ordinary && handed_first_ == nullptr && !requeue_first && !time_to_look()) [[likely]] {
        ABT_thread_opaque* const who = main_sched->choose();
        if (who != nullptr && !migrate_if_asked(*who)) return begin(*who);
    }
    return next_of_all();
}

bool ABT_xstream_opaque::rotate_to_handed(ABT_thread_opaque& who, own_pool& home) noexcept {
    ABT_thread_opaque& next = *handed_first_;
    ABT_thread_opaque* const after = next.next;
    handed_first_ = after;
    if (home.rotate(who, next)) return true;
    next.next = after;
    handed_first_ = &next;
    return false;
}

/// Within a private pool, without anything in between.
[[gnu::always_inline]] inline bool ABT_xstream_opaque::rotate(ABT_thread_opaque& who) noexcept {
    own_pool* const home = who.pool.load(std::memory_order_relaxed)->own;
    if (home == nullptr || has_tool()) return false;
    if (who.wants_to_move()) return false;
    if (handed_first_ != nullptr) return rotate_to_handed(who, *home);
    for (const ABT_pool_opaque* each : main_sched->order) {
        if (each == home) return home->rotate(who);
        if (each->own == nullptr || each->own->size() != 0) return false;
    }
    return false;
}

// Apart: in line, each yield would save the registers that this needs.
[[gnu::noinline]] bool ABT_xstream_opaque::leave_to_chosen(ABT_thread_opaque& who) noexcept {
    if (!amalgam::detail::may_yield_directly()) return false;
    ABT_thread_opaque* next = handed_first_;
    if (next != nullptr) {
        handed_first_ = next->next;
    } else {
        // Its pool may be of a higher priority than others.
        next = main_sched->choose_before(who.pool.load(std::memory_order_relaxed));
        if (next == nullptr || migrate_if_asked(*next)) return false;
    }
    amalgam::detail::yield_directly(*begin(*next));
    return true;
}

bool ABT_xstream_opaque::leave_directly(ABT_thread_opaque& who) noexcept {
    if (!ordinary || time_to_look() || who.is_primary()) return false;
    if (main_sched->kind == ABT_SCHED_RANDWS) return false;
    return rotate(who) || leave_to_chosen(who);
}

amalgam::work_unit* ABT_xstream_opaque::next_of_all() noexcept {
    if (end_.is_set()) {
        leave_to_others();
        return nullptr;
    }
    // The loop, which is asked next, has put the ULT that yields back into its pool.
    if (std::exchange(requeue_first, false)) return nullptr;
    if (!known_.load(std::memory_order_relaxed)) [[unlikely]]
        note_thread();
    const unsigned wanted = stacks_wanted.load(std::memory_order_acquire);
    if (wanted != stacks_seen.load(std::memory_order_relaxed)) [[unlikely]] {
        stacks_seen.store(wanted, std::memory_order_release);
        print_wanted_stacks();
    }
    if (primary_waits_ != nullptr && runs >= primary_until_) {
        wake_primary();
        return nullptr;  // the loop, which is asked next, looks for it first
    }
    if (primary) {
        if (amalgam::work_unit* const stray = runtime::get()->newborn().pop()) {
            ++runs;
            return stray;
        }
    }
    constexpr std::uint64_t looks_after = 64;
    looks_at_ = runs + looks_after;
    if (primary_waits_ != nullptr) looks_at_ = std::min(looks_at_, primary_until_);
    if (ABT_thread_opaque* const who = pick()) return begin(*who);
    if (primary_waits_ != nullptr) wake_primary();
    end_if_done();
    return nullptr;
}

// With units in its pools the loop would not let it sleep; and asleep, it may be the one that a
// push wakes.
void ABT_xstream_opaque::leave_to_others() noexcept {
    bool anything = false;
    for (ABT_pool each : main_sched->pools) {
        if (each->empty()) continue;
        anything = true;
        each->wake_server();
    }
    if (anything) std::this_thread::sleep_for(nap);
}

void ABT_xstream_opaque::wake_primary() noexcept {
    std::exchange(primary_waits_, nullptr)->unpark();
}

void ABT_xstream_opaque::let_run(std::uint64_t number) {
    amalgam::waiter me;
    me.waits_for("yield");
    primary_waits_ = &me;
    primary_until_ = runs + number;
    looks_at_ = std::min(looks_at_, primary_until_);
    me.park();
}

void ABT_xstream_opaque::end_if_done() noexcept {
    if (main_sched->thread != nullptr) return;
    const bool done = main_ended_.load(std::memory_order_relaxed) || main_sched->has_to_stop();
    if (!done) return;
    if (replacing_) return replaced_.set();
    ordinary = false;
    end_.set();
}
