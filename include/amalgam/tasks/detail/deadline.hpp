#pragma once

#include <algorithm>
#include <chrono>

namespace amalgam::detail {

/// The time by the clock of the caller's stream, or the steady clock on a plain thread.
std::chrono::steady_clock::time_point task_now() noexcept;

/// `time` from `now`, without overflow: a very long time is the end of time, and a negative one, or
/// none (NaN), is over at once.
template <typename Rep, typename Period>
std::chrono::steady_clock::time_point deadline_after(
    std::chrono::duration<Rep, Period> time,
    std::chrono::steady_clock::time_point now = task_now()) {
    using point = std::chrono::steady_clock::time_point;
    const std::chrono::duration<double> seconds(time);
    if (!(seconds > seconds.zero())) return now;
    // Before the epoch all that a clock can count is left, and less cannot be said of it.
    const auto left = point::max() - std::max(now, point());
    if (seconds >= std::chrono::duration<double>(left)) return point::max();
    return now + std::chrono::ceil<point::duration>(time);
}

}  // namespace amalgam::detail
