#pragma once

#include <chrono>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// A descriptor that becomes readable at a given time.
///
/// Threads: one at a time.
class wake_up_call {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Throws error{no_memory} if the OS grants no descriptor.
    wake_up_call();

    int handle() const noexcept { return timer_.get(); }
    /// Fires no later than `when`; max(): never. Cost: a system call if `when` is earlier than the
    /// current setting, or that time has passed.
    void set(time_point when) noexcept;
    void cancel() noexcept;

private:
    unique_fd timer_;
    time_point set_to_ = time_point::max();
};

}  // namespace amalgam::detail
