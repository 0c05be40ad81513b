#include "tasks/streams/wake_up_call.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/timerfd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

wake_up_call::wake_up_call() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    if (timer_) return;
    throw error(status{errc::no_memory, errno},
                "out of file descriptors for an execution stream's timer; raise the limit on open "
                "files (ulimit -n) or use fewer streams");
}

void wake_up_call::set(time_point when) noexcept {
    if (when == set_to_) return;
    // Waking once too early is cheaper than a system call per met deadline.
    if (when > set_to_ && set_to_ > std::chrono::steady_clock::now()) return;
    if (when == time_point::max()) return cancel();
    const auto since = std::max(when.time_since_epoch(), time_point::duration(1));
    const auto whole = std::chrono::floor<std::chrono::seconds>(since);
    itimerspec at{};
    at.it_value = {whole.count(), (since - whole).count()};
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
    set_to_ = when;
}

void wake_up_call::cancel() noexcept {
    const itimerspec never{};
    ::timerfd_settime(timer_.get(), 0, &never, nullptr);
    set_to_ = time_point::max();
}

}  // namespace amalgam::detail
