#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tasks/limits.hpp"

namespace amalgam::detail {

/// How long an idle stream polls before it sleeps: as long as that has paid off recently.
///
/// Threads: the stream's, except for set().
class spin_policy {
public:
    using duration = std::chrono::nanoseconds;

    /// Negative: adaptive; else always that long.
    explicit spin_policy(duration fixed) noexcept : fixed_(fixed) {}

    /// Takes effect at once. Any thread.
    void set(duration fixed) noexcept { fixed_.store(fixed, std::memory_order_relaxed); }

    duration limit() const noexcept {
        const duration fixed = fixed_.load(std::memory_order_relaxed);
        return fixed < duration::zero() ? limit_ : fixed;
    }

    /// It slept for `time`. A longer spin would have caught work that came soon; one for work that
    /// came late is wasted.
    void slept(duration time) noexcept {
        if (fixed_.load(std::memory_order_relaxed) >= duration::zero()) return;
        limit_ = time < limits::max_spin ? std::min(limit_ * 2, limits::max_spin)
                                         : std::max(limit_ / 2, limits::min_spin);
    }

private:
    std::atomic<duration> fixed_;
    duration limit_ = limits::max_spin / 2;
};

}  // namespace amalgam::detail
