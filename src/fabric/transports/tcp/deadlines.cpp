#include "fabric/transports/tcp/deadlines.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include <sys/timerfd.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

deadlines::deadlines() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!fd_)
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for a tcp port's timer; raise the limit on open files "
                    "(ulimit -n)");
}

timed::timed() {
    std::set<entry> made;
    place_ = made.extract(made.insert({clock::time_point{}, this}).first);
}

void deadlines::add(clock::time_point when, timed& thing) noexcept {
    thing.place_.value() = {when, &thing};
    all_.insert(std::move(thing.place_));
    wake_at(when);
}

void deadlines::drop(clock::time_point when, timed& thing) noexcept {
    if (auto place = all_.extract({when, &thing})) thing.place_ = std::move(place);
}

void deadlines::wake_at(clock::time_point when) noexcept {
    if (when >= set_for_) return;
    set_for_ = when;
    using namespace std::chrono;
    // 0 would disarm it.
    const auto since =
        std::max<std::int64_t>(1, duration_cast<nanoseconds>(when.time_since_epoch()).count());
    itimerspec at{};
    at.it_value.tv_sec = since / 1'000'000'000;
    at.it_value.tv_nsec = since % 1'000'000'000;
    ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

void deadlines::run(clock::time_point now) noexcept {
    std::uint64_t times;
    [[maybe_unused]] ssize_t got = ::read(fd_.get(), &times, sizeof times);
    while (!all_.empty() && all_.begin()->first <= now) {
        timed& thing = *all_.begin()->second;
        thing.place_ = all_.extract(all_.begin());
        thing.due(now);
    }
    set_for_ = clock::time_point::max();
    if (!all_.empty()) wake_at(all_.begin()->first);
}

}  // namespace amalgam::detail
