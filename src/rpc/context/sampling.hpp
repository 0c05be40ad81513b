#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <amalgam/core/clock.hpp>

#include "rpc/limits.hpp"

namespace amalgam::detail {

/// Which of many calls are measured: every one while they are rare, one in
/// limits::measured_call_in while they are frequent, so that clocks cost next to nothing.
class sampling {
public:
    /// One is measured now: how many calls later the next one is.
    std::uint64_t step(clock::time_point now) noexcept {
        step_ = now - last_ > std::chrono::milliseconds(100)
                    ? std::max<std::uint64_t>(1, step_ / 2)
                    : std::min(limits::measured_call_in, step_ * 2);
        last_ = now;
        return step_;
    }

private:
    clock::time_point last_{};
    std::uint64_t step_ = 1;
};

}  // namespace amalgam::detail
