#pragma once

#include <amalgam/core/detail/chrono.hpp>

namespace amalgam::detail {

/// Current time on the clock of the caller's stream; the steady clock on a plain thread.
std::chrono::steady_clock::time_point task_now() noexcept;

/// `time` from `now`, without overflow. A very long time gives time_point::max(); a negative one or
/// NaN gives `now`.
template <typename Rep, typename Period>
std::chrono::steady_clock::time_point deadline_after(
    std::chrono::duration<Rep, Period> time,
    std::chrono::steady_clock::time_point now = task_now()) {
    using point = std::chrono::steady_clock::time_point;
    const std::chrono::duration<double> seconds(time);
    if (!(seconds > seconds.zero())) return now;
    // For `now` before the epoch this counts from the epoch, as the difference would overflow.
    const auto left = point::max() - (now > point() ? now : point());
    if (seconds >= std::chrono::duration<double>(left)) return point::max();
    return now + std::chrono::ceil<point::duration>(time);
}

}  // namespace amalgam::detail
