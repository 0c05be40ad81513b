#pragma once

#include <chrono>
#include <optional>

#include <amalgam/core/unique_fd.hpp>

#include "tasks/idle/bell.hpp"

namespace amalgam::detail {

/// Where an idle stream sleeps: on its bell and on its pollers' wait handles.
///
/// Threads: watch() and forget() from any; sleep() from the stream.
class sleeper {
public:
    /// Throws error{no_memory} if the OS grants no descriptor.
    explicit sleeper(bell& wakes);

    /// Throws error{invalid} for a descriptor that cannot be waited on, or is already watched.
    void watch(int fd);
    void forget(int fd) noexcept;
    /// Readable if any of them is.
    int handle() const noexcept { return epoll_.get(); }

    /// Sleeps until something is readable, the bell rings, or `longest` has passed (empty: no
    /// limit).
    void sleep(std::optional<std::chrono::nanoseconds> longest) noexcept;

private:
    int wait(std::optional<std::chrono::nanoseconds> longest) noexcept;

    bell& wakes_;
    unique_fd epoll_;
    bool has_pwait2_ = true;
};

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
