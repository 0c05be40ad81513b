#include "tasks/dispatch/switcher.hpp"

#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/record.hpp"

namespace amalgam::detail {

namespace {

/// That of the thread that calls this now, which a switch may change.
[[gnu::noinline]] exception_state& exceptions_of_thread() noexcept {
    asm volatile("");
    return *exception_state::of_thread();
}

}  // namespace

// Before the one who is left can run elsewhere.
[[gnu::noinline]] void switcher::tell_switch(const call_stack& from,
                                             const call_stack& to) noexcept {
    if (from.owner != nullptr) {
        const ult_core& left = *from.owner;
        if (left.home() == nullptr) {
            hooks::tell(task_event::ended, left);
        } else if (const waiter* const until = left.waiting_on.load(std::memory_order_relaxed)) {
            hooks::tell_parked(left, until->what_);
        } else {
            hooks::tell(task_event::yielded, left);
        }
    }
    if (to.owner != nullptr) hooks::tell(task_event::running, *to.owner);
}

// Canceled before it parked: as if its deadline had passed.
void switcher::settle_parked(ult_core& who) noexcept {
    std::uint32_t was = waiter::empty;
    const bool cancel = left_until_->cancelable_ && who.may_be_canceled() &&
                        (who.requests.load(std::memory_order_relaxed) & ult_core::asked_to_end);
    if (cancel) left_until_->state_.compare_exchange_strong(was, waiter::expired);
    if (cancel || !left_until_->commit()) work_.requeue(who);
}

void switcher::push_moved(ult_core& who) noexcept {
    ult_record* const known = who.record.load(std::memory_order_acquire);
    if (known == nullptr || !known->push_notice(who)) who.home()->push(who);
}

// From inside a catch block, or a destructor run by an exception; or there are hooks.
[[gnu::noinline]] switcher::resumed switcher::jump_from_catch(call_stack& from,
                                                              call_stack& to) noexcept {
    if (caches_.exceptions == &told_switches) {
        if (hooks::any()) {
            tell_switch(from, to);
        } else {
            caches_.exceptions = &exceptions_of_thread();
        }
    }
    const exception_state mine = std::exchange(exceptions_of_thread(), {});
    // A second exception, from a wait in a destructor, would terminate the program.
    const bool unwinds = from.owner != nullptr && mine.uncaught != 0;
    if (unwinds) ++from.owner->cancels_later;
    const resumed now = jump_plain(from, to);
    if (unwinds) --from.owner->cancels_later;
    exceptions_of_thread() = mine;
    return now;
}

}  // namespace amalgam::detail
