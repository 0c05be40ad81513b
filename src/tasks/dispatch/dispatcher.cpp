#include "tasks/dispatch/dispatcher.hpp"

#include <utility>

#include "tasks/dispatch/held_mutexes.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/registry.hpp"

namespace amalgam::detail {

// A function that switches may continue on another thread. If this were inlined into it, the
// compiler could keep the first thread's address across the switch.
[[gnu::noinline]] dispatcher* dispatcher::current() noexcept {
    asm volatile("");
    return current_;
}

[[gnu::noinline]] dispatcher* dispatcher::set_current(dispatcher* now) noexcept {
    asm volatile("");
    return std::exchange(current_, now);
}

std::size_t dispatcher::run_batch(std::size_t most) noexcept {
    work_.begin_batch(most);
    const std::uint64_t taken_before = work_.own_pool().taken();
    if (hooks::any()) [[unlikely]]
        run_picked_told();
    while (work_unit* next = work_.pick_stashed_first())
        next->run();
    const std::size_t happened = most - work_.budget();
    if (happened != 0) {
        work_.count_batch(taken_before, happened);
        const std::uint64_t took = renew_time_after_work();
        if (happened == work_.batch()) work_.adapt_batch(took);
    }
    return happened;
}

[[gnu::noinline]] void dispatcher::run_picked_told() noexcept {
    while (work_unit* next = work_.pick_stashed_first())
        run_told(*next);
}

void dispatcher::run_told(work_unit& unit) noexcept {
    if (!hooks::any()) return unit.run();
    tell_of_switches();
    const unit_kind kind = unit.kind();
    if (kind == unit_kind::ult) return unit.run();
    hooks::tell(task_event::running, unit);
    unit.run();
    hooks::tell_ended(kind, &unit);
}

// Handles requests to a ULT that was about to run. True: it went elsewhere instead.
bool dispatcher::heed(ult_core& who) noexcept {
    const auto asked = who.requests.load(std::memory_order_acquire);
    if ((asked & ult_core::left_for_good) != 0) return true;
    if ((asked & ult_core::held) != 0) {
        who.home()->requeue(who);
        return true;
    }
    if ((asked & ult_core::asked_to_move) == 0) return false;
    const auto had = who.requests.fetch_and(static_cast<std::uint8_t>(~ult_core::asked_to_move),
                                            std::memory_order_acquire);
    if ((had & ult_core::asked_to_move) == 0) return false;  // that pool is gone: see left_behind
    pool& wanted = *who.wanted_home.load(std::memory_order_relaxed);
    if (&wanted == who.home()) return false;
    who.move_to(wanted);
    push_moved(who);
    return true;
}

// False: it must not run now. The order matters for ult_registry::hold(); acquire, because what a
// hold reads must be read before the ULT continues.
[[gnu::always_inline]] inline bool dispatcher::run_next(ult_core& next) noexcept {
    running_.store(&next, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return next.requests.load(std::memory_order_acquire) == 0 || !heed(next);
}

void dispatcher::enter(ult_core& next) noexcept {
    if (!run_next(next)) return running_.store(nullptr, std::memory_order_release);
    [[maybe_unused]] const held_mutexes_aside of_loop;
    note_left(nullptr, fate::resumed);
    jump(loop_, next.saved);
}

[[gnu::always_inline]] inline dispatcher::resumed dispatcher::leave(ult_core& self,
                                                                    fate what) noexcept {
    note_left(&self, what);
    for (;;) {
        work_unit* const next = work_.pick();
        if (next != nullptr && ult_core::is_ult(*next)) {
            auto& to = static_cast<ult_core&>(*next);
            if (run_next(to)) return jump(self.saved, to.saved);
        } else {
            work_.stash(next);
            running_.store(nullptr, std::memory_order_release);
            return jump(self.saved, loop_);
        }
    }
}

void dispatcher::leave_to_yield() noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "yield");
    if (!work_.may_rotate(self)) {
        leave(self, fate::yielded);
        return;
    }
    // Only this stream pops its own pool, so a yielding ULT may be in it before its context is
    // saved.
    work_unit* const next = work_.rotate(self);
    if (next == &self) {
        // Alone, it goes on without run_next(), which would have heeded a migrate().
        if (self.requests.load(std::memory_order_relaxed) != 0) leave(self, fate::yielded);
        return;
    }
    note_left(&self, fate::resumed);
    if (ult_core::is_ult(*next)) {
        auto& to = static_cast<ult_core&>(*next);
        if (run_next(to)) {
            jump(self.saved, to.saved);
            return;
        }
        work_.stash(nullptr);
    } else {
        work_.stash(next);
    }
    running_.store(nullptr, std::memory_order_release);
    jump(self.saved, loop_);
}

void dispatcher::leave_to_move(pool& where) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "migrate");
    self.move_to(where);
    leave(self, fate::placed);
}

[[gnu::always_inline]] inline bool dispatcher::take_in_line(ult_core& next) noexcept {
    pool* const home = next.home();
    return work_.budget() != 0 && home != nullptr && ready_work::serves(*this, *home) &&
           home->remove(next);
}

[[gnu::always_inline]] inline bool dispatcher::leave_to_taken_in_line(ult_core& next) noexcept {
    ult_core& self = *running();
    note_left(&self, fate::yielded);
    if (!run_next(next)) {
        running_.store(&self, std::memory_order_release);
        note_left(nullptr, fate::resumed);
        return false;
    }
    work_.spend();
    [[maybe_unused]] const held_mutexes_aside held(self, "yield");
    jump(self.saved, next.saved);
    return true;
}

bool dispatcher::take(ult_core& next) noexcept {
    return take_in_line(next);
}

bool dispatcher::leave_to(ult_core& next) noexcept {
    return take_in_line(next) && leave_to_taken_in_line(next);
}

bool dispatcher::leave_to_taken(ult_core& next) noexcept {
    return leave_to_taken_in_line(next);
}

void dispatcher::leave_directly(work_unit& next) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "yield");
    work_.spend();
    note_left(&self, fate::yielded);
    if (ult_core::is_ult(next)) {
        auto& to = static_cast<ult_core&>(next);
        if (run_next(to)) {
            jump(self.saved, to.saved);
        } else {
            leave(self, fate::yielded);
        }
        return;
    }
    work_.stash(&next);
    running_.store(nullptr, std::memory_order_release);
    jump(self.saved, loop_);
}

bool dispatcher::leave_directly_holding(ult_core& next, std::atomic<bool>& held) noexcept {
    // What a hook does might need what is held.
    if (!may_leave_directly() || caches_.exceptions->any()) return false;
    ult_core& self = *running();
    note_left(&self, fate::placed);
    running_.store(&next, std::memory_order_release);  // as in run_next()
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (next.requests.load(std::memory_order_acquire) != 0) {
        running_.store(&self, std::memory_order_release);
        note_left(nullptr, fate::resumed);
        return false;
    }
    work_.spend();
    left_holding_ = &held;
    [[maybe_unused]] const held_mutexes_aside of_self(self, "yield");
    jump_plain(self.saved, next.saved);  // as no exception is being handled
    return true;
}

bool dispatcher::unpark_and_leave_to(waiter& who) noexcept {
    work_unit* const unit = who.unpark_only();
    if (unit == nullptr) return false;
    if (running() != nullptr && ult_core::is_ult(*unit) && work_.budget() != 0 &&
        ready_work::serves(*this, *unit->home())) {
        return leave_to_taken_in_line(static_cast<ult_core&>(*unit));
    }
    if (!work_.push_own(*unit)) unit->make_ready();
    return false;
}

void dispatcher::leave_to_park(waiter& until) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "wait");
    left_until_ = &until;
    self.waiting_on.store(&until, std::memory_order_relaxed);
    self.parked_at = coarse_now_;
    leave(self, fate::parked);
    self.waiting_on.store(nullptr, std::memory_order_relaxed);
}

void dispatcher::leave_to_park_for(waiter& until, ult_core& next) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "wait");
    left_until_ = &until;
    self.waiting_on.store(&until, std::memory_order_relaxed);
    self.parked_at = coarse_now_;
    note_left(&self, fate::parked);
    if (run_next(next)) {
        work_.spend();
        jump(self.saved, next.saved);
    } else {
        leave(self, fate::parked);
    }
    self.waiting_on.store(nullptr, std::memory_order_relaxed);
}

[[gnu::noinline]] void dispatcher::end_for(ult_core& self, ult_core& next) noexcept {
    check_held_mutexes_at_end(self);
    pool* const home = self.home();
    self.leave_home();
    work_.count_ended(*home, *this);
    note_left(&self, fate::finished);
    if (run_next(next)) {
        work_.spend();
        jump(self.saved, next.saved);
    } else {
        leave(self, fate::finished);
    }
}

dispatcher* dispatcher::join_here(ult_core& other) noexcept {
    ult_core* const self = running();
    pool* const home = other.home();  // null: it has just ended
    if (self == nullptr || home == nullptr || !work_.alone_serves(*home, *this)) return nullptr;
    [[maybe_unused]] const held_mutexes_aside held(*self, "join");
    // Only this stream ends `other`, and nobody else unparks the waiter, so there is no race: no
    // exchange, and parked before the switch.
    waiter me(*self);
    me.state_.store(waiter::parked, std::memory_order_relaxed);
    me.waits_for("join");
    self->waiting_on.store(&me, std::memory_order_relaxed);
    self->parked_at = coarse_now_;
    other.joiner.store(reinterpret_cast<std::uintptr_t>(&me), std::memory_order_relaxed);
    const resumed now = leave(*self, fate::resumed);
    now.who->waiting_on.store(nullptr, std::memory_order_relaxed);
    return static_cast<dispatcher*>(now.here);
}

// Inlined into ult_main(): a return after a switch to anywhere but its call site is mispredicted.
[[gnu::always_inline]] inline dispatcher::resumed dispatcher::leave_finished(
    ult_core& self) noexcept {
    check_held_mutexes_at_end(self);
    pool* const home = self.home();
    self.leave_home();
    work_.count_ended(*home, *this);
    const std::uintptr_t told = self.joiner.load(std::memory_order_acquire);
    if (told > ult_core::finished_alone_mark && (told & ult_core::may_leave) == 0) {
        // Joined by a ULT of this stream, which is therefore parked by now: switch directly to it,
        // bypassing the pool. It frees this stack, but only once it runs.
        auto& joined = *reinterpret_cast<waiter*>(told);
        work_unit* const unit = joined.unit_;
        if (unit != nullptr && work_.alone_serves(*unit->home(), *this)) {
            auto& next = static_cast<ult_core&>(*unit);
            note_left(&self, fate::resumed);
            running_.store(&next, std::memory_order_release);  // as in run_next()
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (next.requests.load(std::memory_order_acquire) == 0) {
                self.joiner.store(ult_core::finished_mark, std::memory_order_relaxed);
                joined.state_.store(waiter::permit, std::memory_order_relaxed);
                return jump(self.saved, next.saved);
            }
        }
    }
    return leave(self, fate::finished);
}

// The loop is never left: a pooled stack is suspended inside leave_finished(), and its next body
// starts by resuming there. No setup per ULT, and ThreadSanitizer's frame counts stay balanced.
void dispatcher::ult_main(arrival first) {
    ult_core* self = arrived(first).who;
    for (;;) {
        if (self->run_body()) continue;
        self = current()->leave_finished(*self).who;
    }
}

void dispatcher::loop_main(arrival first) {
    auto& here = static_cast<dispatcher&>(*arrived(first).here);
    for (;;)
        here.loop_turn_(here.of_);
}

void dispatcher::become_ult(ult_core& main, const stack_memory& loop,
                            void (*turn)(stream&)) noexcept {
    const auto usable = static_cast<std::size_t>(loop.top() - loop.bottom());
    main.saved.sanitizer.adopt_thread();
    main.saved.stack.floats = float_control::now();
    loop_.sanitizer.create(loop.bottom(), usable);
    loop_.stack = make_stack<&dispatcher::loop_main>(loop.top(), usable);
    loop_turn_ = turn;
    loop_memory_ = &loop;
    thread_ult_ = &main;
    main.begin_in(work_.own_pool());
    ult_registry::add(main);
    running_.store(&main, std::memory_order_release);
}

void dispatcher::end_as_ult() noexcept {
    ult_core& main = *running();
    running_.store(nullptr, std::memory_order_release);
    thread_ult_ = nullptr;
    loop_memory_ = nullptr;
    ult_registry::remove(main);
    loop_.sanitizer.destroy();
}

}  // namespace amalgam::detail
