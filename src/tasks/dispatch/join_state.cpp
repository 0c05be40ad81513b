#include "tasks/dispatch/join_state.hpp"

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/registry.hpp"

namespace amalgam::detail {

bool join_state::finish() noexcept {
    if (is_detached()) return true;
    const std::uintptr_t told = joiner.exchange(finished_mark, std::memory_order_acq_rel);
    if (told == detached_mark) return true;
    if (told > finished_alone_mark) reinterpret_cast<waiter*>(told & ~may_leave)->unpark();
    return false;
}

bool join_state::ends_by(waiter::time_point deadline, pool* home, dispatcher* here) {
    if (is_finished()) return true;
    refuse_to_join(home);
    if (wait_until(here != nullptr && here->work().owns(home), deadline)) return true;
    throw_if_canceled();
    return false;
}

bool join_state::wait_until(bool at_home, waiter::time_point deadline) {
    if (is_finished()) return true;
    waiter me;
    me.waits_for("join");
    me.allow_cancel();
    std::uintptr_t mine = reinterpret_cast<std::uintptr_t>(&me) | may_leave;
    std::uintptr_t was = nobody;
    if (!joiner.compare_exchange_strong(was, mine, std::memory_order_acq_rel)) return true;
    if (made_at_home && !at_home && overwritten()) return true;
    if (me.park_until(deadline)) return true;
    if (joiner.compare_exchange_strong(mine, nobody, std::memory_order_acq_rel)) return false;
    me.park();  // the end has taken the waiter, and its permit is on the way
    return true;
}

bool join_state::overwritten() const noexcept {
    ult_registry::let_end(*this);
    return joiner.load(std::memory_order_acquire) == finished_alone_mark;
}

// In two steps, because the ender frees it once it sees that it is detached.
bool join_state::detach_from_elsewhere() noexcept {
    std::uintptr_t was = nobody;
    if (!joiner.compare_exchange_strong(was, detaching_mark) || overwritten()) return true;
    was = detaching_mark;
    return !joiner.compare_exchange_strong(was, detached_mark);
}

}  // namespace amalgam::detail
