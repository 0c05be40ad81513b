#pragma once

#include <chrono>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// A descriptor that is readable from a given time on.
///
/// Threads: one at a time.
class wake_up_call {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Throws error{no_memory} when the OS gives no descriptor.
    wake_up_call();

    int handle() const noexcept { return timer_.get(); }
    /// Not later than `when`; max(): not at all. Cost: a system call when it must be earlier than
    /// it was set to, or that time has passed.
    void set(time_point when) noexcept;
    void cancel() noexcept;

private:
    unique_fd timer_;
    time_point set_to_ = time_point::max();
};

}  // namespace amalgam::detail
