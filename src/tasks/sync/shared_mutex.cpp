#include <amalgam/tasks/shared_mutex.hpp>

#include "tasks/dispatch/mutex_wait.hpp"

namespace amalgam {

bool shared_mutex::enlist(detail::wait_node& me, access how) noexcept {
    const std::lock_guard hold(waiting_);
    if (waiting_.empty() && take(how, detail::stack_page_at(&me))) return false;
    me.wants = static_cast<std::uintptr_t>(how);
    waiting_.push(me);
    return true;
}

detail::wait_node* shared_mutex::serve() noexcept {
    return waiting_.take_while([this](const detail::wait_node& first) {
        return take(static_cast<access>(first.wants), detail::stack_page_at(&first));
    });
}

bool shared_mutex::lock_slow(access how, time_point deadline) {
    detail::shared_mutex_wait me(*this);
    if (!enlist(me, how) ||
        waiting_.wait_unlocked_until(me, deadline, detail::shared_mutex_wait::text))
        return true;
    waiting_.lock();
    detail::wait_node* const served = serve();  // readers queued behind a writer
    waiting_.unlock();
    detail::wait_list::unpark_all(served);
    return false;
}

void shared_mutex::unlock() noexcept {
    waiting_.lock();
    writing_ = false;
    detail::wait_node* const served = serve();
    waiting_.unlock();
    detail::wait_list::unpark_all(served);
}

void shared_mutex::unlock_shared() noexcept {
    waiting_.lock();
    --readers_;
    detail::wait_node* const served = serve();
    waiting_.unlock();
    detail::wait_list::unpark_all(served);
}

}  // namespace amalgam
