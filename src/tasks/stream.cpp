#include "tasks/stream.hpp"

#include <utility>

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

work_unit* stream::pick() noexcept {
    if (budget_ == 0) return nullptr;
    work_unit* const next = order_->next();
    if (next != nullptr) --budget_;
    return next;
}

void stream::jump(context& from, context& to) noexcept {
    from_ = &from;
    from.exceptions = *thread_exceptions_;
    *thread_exceptions_ = to.exceptions;
    from.sanitizer.before_switch_to(to.sanitizer);
    const auto back = boost::context::detail::jump_fcontext(to.where, this);
    // Perhaps on another stream: only what came with the jump is known here.
    static_cast<stream*>(back.data)->arrived(back.fctx);
}

void stream::arrived(boost::context::detail::fcontext_t from) noexcept {
    context& here = running_ != nullptr ? running_->saved : loop_;
    here.sanitizer.after_switch_from(from_->sanitizer);
    from_->where = from;
    settle();
}

void stream::settle() noexcept {
    const departure gone = departed_;
    switch (gone.what) {
        case fate::resumed:
            break;
        case fate::yielded:
            gone.who->home->push(*gone.who);
            break;
        case fate::parked:
            // The permit came before the park: back to the pool at once.
            if (!gone.until->commit()) gone.who->home->push(*gone.who);
            break;
        case fate::finished:
            gone.who->finished();
            break;
    }
}

void stream::enter(ult_core& next) noexcept {
    departed_ = {};
    running_ = &next;
    jump(loop_, next.saved);
}

void stream::leave(departure how) noexcept {
    departed_ = how;
    context& from = running_->saved;
    work_unit* const next = pick();
    if (next != nullptr && next->run_ == &ult_core::run_unit) {
        auto& to = static_cast<ult_core&>(*next);
        running_ = &to;
        jump(from, to.saved);
    } else {
        stashed_ = next;
        running_ = nullptr;
        jump(from, loop_);
    }
}

void stream::leave_to_yield() noexcept {
    leave({running_, fate::yielded, nullptr});
}

void stream::leave_to_park(waiter& until) noexcept {
    leave({running_, fate::parked, &until});
}

void stream::leave_finished() noexcept {
    ult_core& self = *running_;
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
            departed_ = {};
            running_ = next;
            return jump(self.saved, next->saved);
        }
    }
    leave({&self, fate::finished, nullptr});
}

}  // namespace amalgam::detail
