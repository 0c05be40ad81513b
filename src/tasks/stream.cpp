#include "tasks/stream.hpp"

#include <utility>

#include "tasks/held_mutexes.hpp"

// The switching; the loop is in stream_loop.cpp.

namespace amalgam::detail {

namespace {
// initial-exec: one load instead of a call into the dynamic linker.
[[gnu::tls_model("initial-exec")]] constinit thread_local stream* current_stream = nullptr;
}  // namespace

// A function that switches may go on in another thread. If this were inlined into it, the
// compiler could keep the first thread's address across the switch.
[[gnu::noinline]] stream* stream::current() noexcept {
    asm volatile("");
    return current_stream;
}

[[gnu::noinline]] stream* stream::set_current(stream* now) noexcept {
    asm volatile("");
    return std::exchange(current_stream, now);
}

// Everything between a public leave_…() and the switch is inlined, and after it too: each
// return that follows a switch is one the processor's return stack mispredicts.

[[gnu::always_inline]] inline work_unit* stream::pick_inline() noexcept {
    if (budget_ == 0) return nullptr;
    work_unit* const next = own_order_ ? own_pool_.pop() : order_->next();
    if (next != nullptr) --budget_;
    return next;
}

[[gnu::always_inline]] inline void stream::requeue(ult_core& who) noexcept {
    if (who.home == &own_pool_) {
        own_pool_.push_own(who);
    } else {
        who.home->push(who);
    }
}

[[gnu::always_inline]] inline void stream::settle() noexcept {
    ult_core* const who = left_;
    switch (left_for_) {
        case fate::resumed:
            break;
        case fate::yielded:
            requeue(*who);
            break;
        case fate::parked:
            // The permit came before the park: back to the pool at once.
            if (!left_until_->commit()) requeue(*who);
            break;
        case fate::finished:
            who->finished();
            break;
    }
}

[[gnu::always_inline]] inline void stream::arrived_inline(
    boost::context::detail::fcontext_t from) noexcept {
    context& here = running_ != nullptr ? running_->saved : loop_;
    here.sanitizer.after_switch_from(from_->sanitizer);
    from_->where = from;
    settle();
}

[[gnu::always_inline]] inline void stream::jump(context& from, context& to) noexcept {
    from_ = &from;
    from.exceptions = *thread_exceptions_;
    *thread_exceptions_ = to.exceptions;
    from.sanitizer.before_switch_to(to.sanitizer);
    const auto back = boost::context::detail::jump_fcontext(to.where, this);
    // Perhaps on another stream: only what came with the jump is known here.
    static_cast<stream*>(back.data)->arrived_inline(back.fctx);
}

work_unit* stream::pick() noexcept {
    return pick_inline();
}

void stream::arrived(boost::context::detail::fcontext_t from) noexcept {
    arrived_inline(from);
}

void stream::enter(ult_core& next) noexcept {
    [[maybe_unused]] const held_mutexes_aside of_loop;
    left_for_ = fate::resumed;
    running_ = &next;
    jump(loop_, next.saved);
}

[[gnu::always_inline]] inline void stream::leave(ult_core& self, fate what) noexcept {
    left_ = &self;
    left_for_ = what;
    work_unit* const next = pick_inline();
    if (next != nullptr && next->run_ == &ult_core::run_unit) {
        auto& to = static_cast<ult_core&>(*next);
        running_ = &to;
        jump(self.saved, to.saved);
    } else {
        stashed_ = next;
        running_ = nullptr;
        jump(self.saved, loop_);
    }
}

void stream::leave_to_yield() noexcept {
    [[maybe_unused]] const held_mutexes_aside held(*running_, "yield");
    leave(*running_, fate::yielded);
}

void stream::leave_to_park(waiter& until) noexcept {
    [[maybe_unused]] const held_mutexes_aside held(*running_, "wait");
    left_until_ = &until;
    leave(*running_, fate::parked);
}

bool stream::join_here(ult_core& other) noexcept {
    if (running_ == nullptr || other.home->served_by_.load(std::memory_order_relaxed) != this) {
        return false;
    }
    [[maybe_unused]] const held_mutexes_aside held(*running_, "join");
    // Only this stream ends `other`, and nobody else unparks the waiter, so nothing here
    // races: no exchange, and parked before the switch.
    waiter me(*running_);
    me.state_.store(waiter::parked, std::memory_order_relaxed);
    other.joiner.store(reinterpret_cast<std::uintptr_t>(&me), std::memory_order_relaxed);
    leave(*running_, fate::resumed);
    return true;
}

void stream::leave_finished() noexcept {
    ult_core& self = *running_;
    check_held_mutexes_at_end(self);
    const std::uintptr_t told = self.joiner.load(std::memory_order_acquire);
    if (told > ult_core::finished_mark && budget_ != 0) {
        // Joined by a ULT of this stream, which is therefore parked by now: straight to it,
        // past the pool. It frees this stack, but only once it runs.
        auto& joined = *reinterpret_cast<waiter*>(told);
        ult_core* const next = joined.ult_;
        if (next != nullptr && next->home->served_by_.load(std::memory_order_relaxed) == this) {
            --budget_;
            self.joiner.store(ult_core::finished_mark, std::memory_order_relaxed);
            joined.state_.store(waiter::permit, std::memory_order_relaxed);
            left_for_ = fate::resumed;
            running_ = next;
            return jump(self.saved, next->saved);
        }
    }
    leave(self, fate::finished);
}

}  // namespace amalgam::detail
