#pragma once

#include <algorithm>
#include <chrono>

namespace amalgam::detail {

/// How long an idle stream polls before it sleeps: as long as that has paid off lately.
class spin_policy {
public:
    using duration = std::chrono::nanoseconds;
    static constexpr duration longest = std::chrono::microseconds(50);
    static constexpr duration shortest = std::chrono::microseconds(2);

    /// Negative: adapt; else that long, always.
    explicit spin_policy(duration fixed) noexcept
        : adaptive_(fixed < duration::zero()), limit_(adaptive_ ? longest / 2 : fixed) {}

    duration limit() const noexcept { return limit_; }

    /// It slept for `time`: spinning on would have caught work that came soon, and
    /// was wasted on work that came late.
    void slept(duration time) noexcept {
        if (!adaptive_) return;
        limit_ = time < longest ? std::min(limit_ * 2, longest) : std::max(limit_ / 2, shortest);
    }

private:
    bool adaptive_;
    duration limit_;
};

}  // namespace amalgam::detail
