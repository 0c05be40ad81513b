#include "tasks/idle/sleeper.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

sleeper::sleeper(bell& wakes) : wakes_(wakes), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) {
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for an execution stream's epoll set; raise the limit "
                    "on open files (ulimit -n) or use fewer streams");
    }
    watch(wakes_.fd);
}

void sleeper::watch(int fd) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) == 0) return;
    const int why = errno;
    throw error(status{errc::invalid, why},
                fmt::format("a stream cannot sleep on the poller's wait handle {} ({}), expected "
                            "an open descriptor that epoll supports, added only once",
                            fd, std::strerror(why)));
}

void sleeper::forget(int fd) noexcept {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

int sleeper::wait(std::optional<std::chrono::nanoseconds> longest) noexcept {
    epoll_event first{};
    int count = -1;
    if (longest && has_pwait2_) {
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(*longest);
        const timespec limit{whole.count(), (*longest - whole).count()};
        count = ::epoll_pwait2(epoll_.get(), &first, 1, &limit, nullptr);
        if (count < 0 && errno == ENOSYS) has_pwait2_ = false;  // before Linux 5.11
    }
    if (longest && !has_pwait2_) {
        const auto whole = std::chrono::ceil<std::chrono::milliseconds>(*longest).count();
        const auto most = std::numeric_limits<int>::max();
        count = ::epoll_wait(epoll_.get(), &first, 1,
                             static_cast<int>(std::min<decltype(whole)>(whole, most)));
    }
    if (!longest) count = ::epoll_wait(epoll_.get(), &first, 1, -1);
    return count > 0 ? first.data.fd : -1;
}

void sleeper::sleep(std::optional<std::chrono::nanoseconds> longest) noexcept {
    if (wait(longest) == wakes_.fd) wakes_.drain();
}

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
