#include <amalgam/tasks/condition_variable.hpp>

namespace amalgam {

void condition_variable::notify_one() noexcept {
    waiting_.lock();
    detail::wait_node* const first = waiting_.pop();
    waiting_.unlock();
    if (first != nullptr) first->who.unpark();
}

void condition_variable::notify_all() noexcept {
    waiting_.lock();
    detail::wait_node* const all = waiting_.take_all();
    waiting_.unlock();
    detail::wait_list::unpark_all(all);
}

void condition_variable::wait(std::unique_lock<mutex>& lock) {
    wait_until(lock, time_point::max());
}

std::cv_status condition_variable::wait_until(std::unique_lock<mutex>& lock, time_point deadline) {
    detail::wait_node me;
    waiting_.lock();
    waiting_.push(me);
    waiting_.unlock();
    lock.unlock();
    struct relock {
        std::unique_lock<mutex>& lock;
        ~relock() { lock.lock(); }  // never canceled
    } at_end{lock};
    const bool notified = waiting_.wait_cancelable_until(me, deadline);
    return notified ? std::cv_status::no_timeout : std::cv_status::timeout;
}

}  // namespace amalgam
