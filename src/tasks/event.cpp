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

bool event::wait_until(time_point deadline) {
    // The list is locked even when the event is set: once this returns, the owner may
    // destroy the event, so set() must have let go of it.
    waiting_.lock();
    if (is_set()) {
        waiting_.unlock();
        return true;
    }
    waiting_.unlock();
    detail::wait_node me;  // throws where nobody can wait
    waiting_.lock();
    if (is_set()) {
        waiting_.unlock();
        return true;
    }
    waiting_.push(me);
    waiting_.unlock();
    return waiting_.wait_cancelable_until(me, deadline);
}

}  // namespace amalgam
