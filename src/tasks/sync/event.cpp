#include <mutex>

#include <amalgam/tasks/event.hpp>

namespace amalgam {

void event::set() noexcept {
    waiting_.lock();
    set_.store(true, std::memory_order_release);
    detail::wait_node* const all = waiting_.take_all();
    waiting_.unlock();
    detail::wait_list::unpark_all(all);
}

void event::wait() {
    wait_until(time_point::max());
}

// Locks the list even if the event is set: once a wait has returned, the owner may destroy the
// event, so set() must have released it.
bool event::enlist(detail::wait_node& me) noexcept {
    const std::lock_guard hold(waiting_);
    if (is_set()) return false;
    waiting_.push(me);
    return true;
}

bool event::wait_until(time_point deadline) {
    {
        const std::lock_guard hold(waiting_);
        if (is_set()) return true;
    }
    detail::wait_node me;  // throws where waiting is impossible
    return !enlist(me) || waiting_.wait_cancelable_until(me, deadline, "event");
}

}  // namespace amalgam
