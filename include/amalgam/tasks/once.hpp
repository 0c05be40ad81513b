#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

/// Records whether call_once() has run.
class once_flag {
public:
    once_flag() = default;
    once_flag(const once_flag&) = delete;
    once_flag& operator=(const once_flag&) = delete;

private:
    template <typename Function, typename... Arguments>
    friend void call_once(once_flag& flag, Function&& what, Arguments&&... arguments);
    std::atomic<bool> done_{false};
    mutex doing_;
};

/// Runs `what` unless a call with the same flag has completed it; concurrent callers wait. If it
/// throws, its caller gets the exception and the next caller tries again.
///
/// Threads: any ULT or thread; `what` may wait, but not for a call with the same flag.
/// Failure: throws error{invalid} if it would have to wait inside a tasklet, timer callback or
///          poller.
/// Cost:    one load once done.
template <typename Function, typename... Arguments>
void call_once(once_flag& flag, Function&& what, Arguments&&... arguments) {
    if (flag.done_.load(std::memory_order_acquire)) return;
    const std::lock_guard hold(flag.doing_);
    if (flag.done_.load(std::memory_order_relaxed)) return;
    std::invoke(std::forward<Function>(what), std::forward<Arguments>(arguments)...);
    flag.done_.store(true, std::memory_order_release);
}

}  // namespace amalgam
