#include <amalgam/tasks/semaphore.hpp>

namespace amalgam {

bool semaphore::enlist(detail::wait_node& me, std::size_t permits) noexcept {
    const std::lock_guard hold(waiting_);
    if (take(permits)) return false;
    me.wants = permits;
    waiting_.push(me);
    return true;
}

detail::wait_node* semaphore::serve() noexcept {
    return waiting_.take_while([this](const detail::wait_node& first) {
        if (first.wants > permits_) return false;
        permits_ -= first.wants;
        return true;
    });
}

bool semaphore::acquire_slow(std::size_t permits, time_point deadline) {
    struct serves_others {
        semaphore& self;
        bool served = false;
        ~serves_others() {
            if (!served) self.release(0);  // later waiters may want less
        }
    } at_end{*this};
    detail::wait_node me;
    at_end.served =
        !enlist(me, permits) || waiting_.wait_cancelable_until(me, deadline, "semaphore");
    return at_end.served;
}

void semaphore::release(std::size_t permits) noexcept {
    waiting_.lock();
    permits_ += permits;
    detail::wait_node* const served = serve();
    waiting_.unlock();
    detail::wait_list::unpark_all(served);
}

std::size_t semaphore::available() const noexcept {
    const std::lock_guard hold(waiting_);
    return permits_;
}

}  // namespace amalgam
