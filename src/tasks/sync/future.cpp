#include <utility>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/tasks/detail/future_state.hpp>

#include "tasks/dispatch/ult_core.hpp"

namespace amalgam::detail {

namespace {

struct parked_waiter : continuation {
    parked_waiter() : continuation{&on_complete} {}
    static void on_complete(continuation& self) noexcept {
        static_cast<parked_waiter&>(self).who.unpark();
    }
    waiter who;
};

}  // namespace

void future_core::wait() {
    wait_until(time_point::max());
}

bool future_core::wait_until(time_point deadline) {
    if (ready()) return true;
    parked_waiter me;
    me.who.allow_cancel();
    me.who.waits_for("future");
    if (!attach(me) || me.who.park_until(deadline)) return true;
    if (detach(me)) {
        throw_if_canceled();
        return false;
    }
    me.who.park();  // complete() has taken `me`: the permit will come
    return true;
}

bool future_core::attach(continuation& then) {
    continuation* expected = nullptr;
    if (next_.compare_exchange_strong(expected, &then, std::memory_order_acq_rel)) return true;
    if (expected == done_mark()) return false;
    throw error(errc::invalid,
                "another task is already waiting for this future: a future has one user at a time; "
                "share the value, or use an event");
}

bool future_core::detach(continuation& then) noexcept {
    continuation* expected = &then;
    return next_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
}

void future_core::complete() noexcept {
    continuation* const then = next_.exchange(done_mark(), std::memory_order_acq_rel);
    if (then != nullptr) then->resume(*then);
}

void future_core::fail(failure why) noexcept {
    why_ = std::move(why);
    complete();
}

void future_core::fail(std::exception_ptr why) noexcept {
    try {
        std::rethrow_exception(why);
    } catch (const error& known) {
        why_ = in_words(known.code(), text_of(known));
    } catch (...) {
        why_ = in_words({errc::handler_failed}, [&] { return describe(why); });
    }
    exception_ = std::move(why);
    complete();
}

void future_core::fail_as_broken() noexcept {
    why_ = in_words({errc::canceled},
                    "broken promise: the promise was destroyed before its value was set");
    complete();
}

// Out of line, so that most calls save no registers.
[[noreturn, gnu::noinline]] static void throw_failure(const std::exception_ptr& thrown,
                                                      const failure& why) {
    if (thrown) std::rethrow_exception(thrown);
    throw error(why.what, why.sentence);
}

void future_core::throw_if_failed() const {
    if (exception_ || !why_.what.ok()) [[unlikely]]
        throw_failure(exception_, why_);
}

void future_core::reset() noexcept {
    next_.store(nullptr, std::memory_order_relaxed);
    references_.store(1, std::memory_order_relaxed);
    abandon_ = nullptr;
    why_ = {};
    exception_ = nullptr;
}

}  // namespace amalgam::detail
