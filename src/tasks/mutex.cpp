#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

void mutex::lock_slow() {
    detail::wait_node me;
    waiting_.lock();
    // From here on unlock() must come to the list, so it cannot miss us.
    if (state_.exchange(contended, std::memory_order_acquire) == unlocked) {
        if (waiting_.empty()) state_.store(locked, std::memory_order_relaxed);
        waiting_.unlock();
        return;
    }
    waiting_.push(me);
    waiting_.unlock();
    me.who.park();  // hand_over() made it ours
}

void mutex::hand_over() noexcept {
    waiting_.lock();
    detail::wait_node* const next = waiting_.pop();
    if (waiting_.empty()) state_.store(locked, std::memory_order_relaxed);
    waiting_.unlock();
    next->who.unpark();
}

}  // namespace amalgam
