#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/condition_variable.hpp>

#include "tasks/dispatch/mutex_wait.hpp"

namespace amalgam {

void condition_variable::check_locked(const std::unique_lock<mutex>& lock) {
    if (lock.owns_lock()) return;
    throw error(errc::invalid,
                "waiting for a condition requires its mutex to be locked, or a notification could "
                "be missed: lock it, check the condition, then wait");
}

// A ULT or thread locks the mutex itself once it runs. A coroutine cannot do that before it is
// resumed, so it moves from this list to that of its mutex, which `wants` then points to.
void condition_variable::notify(detail::wait_node& who) noexcept {
    auto* const wanted = reinterpret_cast<mutex*>(who.wants);
    if (wanted == nullptr || !wanted->enlist(who)) who.who.unpark();
}

void condition_variable::notify_one() noexcept {
    waiting_.lock();
    detail::wait_node* const first = waiting_.pop();
    waiting_.unlock();
    if (first != nullptr) notify(*first);
}

void condition_variable::notify_all() noexcept {
    waiting_.lock();
    detail::wait_node* each = waiting_.take_all();
    waiting_.unlock();
    while (each != nullptr)
        notify(*std::exchange(each, each->next));
}

void condition_variable::wait(std::unique_lock<mutex>& lock) {
    wait_until(lock, time_point::max());
}

std::cv_status condition_variable::wait_until(std::unique_lock<mutex>& lock, time_point deadline) {
    check_locked(lock);
    detail::condition_wait me(*lock.mutex());
    waiting_.lock();
    waiting_.push(me);
    waiting_.unlock();
    lock.unlock();
    struct relock {
        std::unique_lock<mutex>& lock;
        ~relock() { lock.lock(); }  // never canceled
    } at_end{lock};
    const bool notified =
        waiting_.wait_cancelable_until(me, deadline, detail::condition_wait::text);
    return notified ? std::cv_status::no_timeout : std::cv_status::timeout;
}

bool condition_variable::enlist(detail::wait_node& me, std::unique_lock<mutex>* lock) noexcept {
    me.wants = reinterpret_cast<std::uintptr_t>(lock->mutex());
    waiting_.lock();
    waiting_.push(me);
    waiting_.unlock();
    lock->unlock();
    return true;
}

}  // namespace amalgam
