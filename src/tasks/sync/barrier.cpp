#include <mutex>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/barrier.hpp>

namespace amalgam {

barrier::barrier(std::size_t parties) : parties_(parties), missing_(parties) {
    check_parties();
}

void barrier::check_parties() const {
    if (parties_ != 0) return;
    throw error(errc::invalid,
                "a barrier has no participants: give how many will arrive in each round, and do "
                "not arrive after arrive_and_drop()");
}

void barrier::resize(std::size_t parties) {
    if (parties == 0) {
        throw error(errc::invalid,
                    "a barrier cannot be resized to 0 parties: give how many will arrive in each "
                    "round, 1 or more");
    }
    const std::lock_guard hold(waiting_);
    if (missing_ != parties_) {
        throw error(errc::invalid,
                    fmt::format("a barrier is resized between rounds only, but {} of {} parties "
                                "have arrived in this one (one that was canceled meanwhile counts, "
                                "too): resize it once the others have arrived",
                                parties_ - missing_, parties_));
    }
    parties_ = missing_ = parties;
}

// False: all parties have arrived.
bool barrier::enlist(detail::wait_node& me) {
    detail::wait_node* all = nullptr;
    {
        const std::lock_guard hold(waiting_);
        check_parties();
        if (--missing_ != 0) {
            waiting_.push(me);
            return true;
        }
        missing_ = parties_;
        all = waiting_.take_all();
    }
    detail::wait_list::unpark_all(all);
    return false;
}

bool barrier::arrive_and_wait() {
    detail::wait_node me;
    if (!enlist(me)) return true;
    waiting_.wait_cancelable_until(me, waiter::time_point::max(), "barrier");
    return false;
}

void barrier::arrive_and_drop() {
    detail::wait_node* all = nullptr;
    {
        const std::lock_guard hold(waiting_);
        check_parties();
        --parties_;
        if (--missing_ == 0) {
            missing_ = parties_;
            all = waiting_.take_all();
        }
    }
    detail::wait_list::unpark_all(all);
}

}  // namespace amalgam
