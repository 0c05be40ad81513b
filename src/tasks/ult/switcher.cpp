#include "tasks/ult/switcher.hpp"

#include "tasks/ult/record.hpp"

namespace amalgam::detail {

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

// From inside a catch block, or a destructor run by an exception.
[[gnu::noinline]] switcher::resumed switcher::jump_from_catch(call_stack& from,
                                                              call_stack& to) noexcept {
    const exception_state mine = std::exchange(*caches_.exceptions, {});
    // A second exception, from a wait in a destructor, would terminate the program.
    const bool unwinds = from.owner != nullptr && mine.uncaught != 0;
    if (unwinds) ++from.owner->cancels_later;
    const resumed now = jump_plain(from, to);
    if (unwinds) --from.owner->cancels_later;
    *now.here->caches_.exceptions = mine;
    return now;
}

}  // namespace amalgam::detail
