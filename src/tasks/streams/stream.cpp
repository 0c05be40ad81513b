#include "tasks/streams/stream.hpp"

#include <utility>

#include "tasks/ult/held_mutexes.hpp"

// Switching; the loop is in run_loop.cpp.

namespace amalgam::detail {

// A function that switches may continue on another thread. If this were inlined into it, the
// compiler could keep the first thread's address across the switch.
[[gnu::noinline]] stream* stream::current() noexcept {
    asm volatile("");
    return current_;
}

[[gnu::noinline]] stream* stream::set_current(stream* now) noexcept {
    asm volatile("");
    return std::exchange(current_, now);
}

// Everything between a public leave_…() and the switch is inlined, and everything after it too: the
// processor's return stack mispredicts each return that follows a switch.

[[gnu::always_inline]] inline work_unit* stream::pick_inline() noexcept {
    if (budget_ == 0) return nullptr;
    work_unit* const next = own_order_     ? own_pool_.pop_in_turn(budget_)
                            : known_order_ ? order_->next()
                                           : next_of_others();
    if (next != nullptr) --budget_;
    return next;
}

[[gnu::always_inline]] inline void stream::requeue(ult_core& who) noexcept {
    pool* const home = who.home();
    if (home == &own_pool_) {
        own_pool_.push_own(who);
    } else {
        home->requeue(who);
    }
}

// Canceled before it parked: as if its deadline had passed.
void stream::settle_parked(ult_core& who) noexcept {
    std::uint32_t was = waiter::empty;
    const bool cancel = left_until_->cancelable_ && who.may_be_canceled() &&
                        (who.requests.load(std::memory_order_relaxed) & ult_core::asked_to_end);
    if (cancel) left_until_->state_.compare_exchange_strong(was, waiter::expired);
    if (cancel || !left_until_->commit()) requeue(who);
}

[[gnu::always_inline]] inline void stream::settle() noexcept {
    ult_core* const who = left_.load(std::memory_order_relaxed);
    if (left_for_ == fate::resumed) [[likely]]
        return left_.store(nullptr, std::memory_order_release);
    switch (left_for_) {
        case fate::resumed:
            break;
        case fate::yielded:
            requeue(*who);
            break;
        case fate::moved:
            who->home()->push(*who);
            break;
        case fate::parked:
            if (who->requests.load(std::memory_order_relaxed) != 0) {
                settle_parked(*who);
            } else if (!left_until_->commit()) {
                requeue(*who);  // the permit came before the park: back to the pool at once
            }
            break;
        case fate::finished:
            // First: give_back() may take a lock whose holder, ult_registry::hold, waits for this.
            left_.store(nullptr, std::memory_order_release);
            if (end(*who)) ult_core::give_back(*who, stock_);
            return;
    }
    left_.store(nullptr, std::memory_order_release);
}

[[gnu::always_inline]] inline stream::resumed stream::arrived(arrival at) noexcept {
    call_stack& now = call_stack::of(at);
    auto* const here = static_cast<stream*>(at.data);
    if constexpr (sanitized) now.sanitizer.after_switch_from(here->from_->sanitizer);
    here->settle();
    return {now.owner, here};
}

[[gnu::always_inline]] inline stream::resumed stream::jump(call_stack& from,
                                                           call_stack& to) noexcept {
    // The ULT that left has taken its caught exceptions along.
    if (thread_exceptions_->any()) [[unlikely]]
        return jump_from_catch(from, to);
    return jump_plain(from, to);
}

// From inside a catch block, or a destructor run by an exception.
[[gnu::noinline]] stream::resumed stream::jump_from_catch(call_stack& from,
                                                          call_stack& to) noexcept {
    const exception_state mine = std::exchange(*thread_exceptions_, {});
    // A second exception, from a wait in a destructor, would terminate the program.
    const bool unwinds = from.owner != nullptr && mine.uncaught != 0;
    if (unwinds) ++from.owner->cancels_later;
    const resumed now = jump_plain(from, to);
    if (unwinds) --from.owner->cancels_later;
    *now.here->thread_exceptions_ = mine;
    return now;
}

[[gnu::always_inline]] inline stream::resumed stream::jump_plain(call_stack& from,
                                                                 call_stack& to) noexcept {
    if constexpr (sanitized) from_ = &from;
    from.sanitizer.before_switch_to(to.sanitizer);
    return arrived(switch_stack(from.stack, to.stack, this));
}

// Here rather than beside the loop, for pick_inline().
std::size_t stream::run_batch(std::size_t most) noexcept {
    budget_ = most;
    while (work_unit* next = stashed_ != nullptr ? std::exchange(stashed_, nullptr) : pick_inline())
        next->run();
    const std::size_t happened = most - budget_;
    if (happened != 0) {
        const std::uint64_t ticks = cycles();
        if (happened == batch_) adapt_batch(ticks - coarse_now_);
        coarse_now_ = ticks;
    }
    return happened;
}

// Handles requests to a ULT that was about to run. True: it went elsewhere instead.
bool stream::heed(ult_core& who) noexcept {
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
    wanted.push(who);
    return true;
}

// False: it must not run now. The order matters for ult_registry::hold(); acquire, because what a
// hold reads must be read before the ULT continues.
[[gnu::always_inline]] inline bool stream::run_next(ult_core& next) noexcept {
    running_.store(&next, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return next.requests.load(std::memory_order_acquire) == 0 || !heed(next);
}

void stream::enter(ult_core& next) noexcept {
    if (!run_next(next)) return running_.store(nullptr, std::memory_order_release);
    [[maybe_unused]] const held_mutexes_aside of_loop;
    left_for_ = fate::resumed;
    jump(loop_, next.saved);
}

[[gnu::always_inline]] inline stream::resumed stream::leave(ult_core& self, fate what) noexcept {
    left_.store(&self, std::memory_order_relaxed);
    left_for_ = what;
    for (;;) {
        work_unit* const next = pick_inline();
        if (next != nullptr && next->run_ == &ult_core::run_unit) {
            auto& to = static_cast<ult_core&>(*next);
            if (run_next(to)) return jump(self.saved, to.saved);
        } else {
            stashed_ = next;
            running_.store(nullptr, std::memory_order_release);
            return jump(self.saved, loop_);
        }
    }
}

void stream::leave_to_yield() noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "yield");
    if (!own_order_ || budget_ == 0 || self.home() != &own_pool_) {
        leave(self, fate::yielded);
        return;
    }
    // Only this stream pops its own pool, so a yielding ULT may be in it before its context is
    // saved.
    --budget_;
    work_unit* const next = own_pool_.rotate(self, budget_);
    if (next == &self) return;
    left_.store(&self, std::memory_order_relaxed);
    left_for_ = fate::resumed;
    if (next->run_ == &ult_core::run_unit) {
        auto& to = static_cast<ult_core&>(*next);
        if (run_next(to)) {
            jump(self.saved, to.saved);
            return;
        }
        stashed_ = nullptr;
    } else {
        stashed_ = next;
    }
    running_.store(nullptr, std::memory_order_release);
    jump(self.saved, loop_);
}

void stream::leave_to_move(pool& where) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "migrate");
    self.move_to(where);
    leave(self, fate::moved);
}

bool stream::leave_to(ult_core& next) noexcept {
    pool* const home = next.home();
    if (budget_ == 0 || !serves(home) || !home->remove(next)) return false;
    ult_core& self = *running();
    left_.store(&self, std::memory_order_relaxed);
    left_for_ = fate::yielded;
    if (!run_next(next)) {
        running_.store(&self, std::memory_order_release);
        left_.store(nullptr, std::memory_order_relaxed);
        return false;
    }
    --budget_;
    [[maybe_unused]] const held_mutexes_aside held(self, "yield");
    jump(self.saved, next.saved);
    return true;
}

void stream::leave_to_park(waiter& until) noexcept {
    ult_core& self = *running();
    [[maybe_unused]] const held_mutexes_aside held(self, "wait");
    left_until_ = &until;
    self.waiting_on.store(&until, std::memory_order_relaxed);
    self.parked_at = coarse_now_;
    leave(self, fate::parked);
    self.waiting_on.store(nullptr, std::memory_order_relaxed);
}

stream* stream::join_here(ult_core& other) noexcept {
    ult_core* const self = running();
    pool* const home = other.home();  // null: it has just ended
    if (self == nullptr || home == nullptr ||
        (home != &own_pool_ && !home->served_only_by(*this))) {
        return nullptr;
    }
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
    return now.here;
}

// Inlined into ult_main(): a return after a switch to anywhere but its call site is mispredicted.
[[gnu::always_inline]] inline stream::resumed stream::leave_finished(ult_core& self) noexcept {
    check_held_mutexes_at_end(self);
    pool* const home = self.home();
    self.leave_home();
    if (home == &own_pool_) {
        own_pool_.add_own_ults(-1);
    } else {
        count_ults(*home, -1, this);
    }
    const std::uintptr_t told = self.joiner.load(std::memory_order_acquire);
    if (told > ult_core::finished_alone_mark) {
        // Joined by a ULT of this stream, which is therefore parked by now: switch directly to it,
        // bypassing the pool. It frees this stack, but only once it runs.
        auto& joined = *reinterpret_cast<waiter*>(told);
        work_unit* const unit = joined.unit_;
        if (unit != nullptr &&
            (unit->home() == &own_pool_ || unit->home()->served_only_by(*this))) {
            auto& next = static_cast<ult_core&>(*unit);
            left_.store(&self, std::memory_order_relaxed);
            running_.store(&next, std::memory_order_release);  // as in run_next()
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (next.requests.load(std::memory_order_acquire) == 0) {
                self.joiner.store(ult_core::finished_mark, std::memory_order_relaxed);
                joined.state_.store(waiter::permit, std::memory_order_relaxed);
                left_for_ = fate::resumed;
                return jump(self.saved, next.saved);
            }
        }
    }
    return leave(self, fate::finished);
}

// The loop is never left: a pooled stack is suspended inside leave_finished(), and its next body
// starts by resuming there. No setup per ULT, and ThreadSanitizer's frame counts stay balanced.
void stream::ult_main(arrival first) {
    ult_core* self = arrived(first).who;
    for (;;) {
        self->run_body();
        self = current()->leave_finished(*self).who;
    }
}

void stream::loop_main(arrival first) {
    stream& here = *arrived(first).here;
    for (;;)
        here.turn_once();
}

}  // namespace amalgam::detail
