#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include <amalgam/tasks/mutex.hpp>

namespace amalgam {

/// Whether something was done already; see call_once().
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

/// Runs `what` unless a call with the same flag has run it to its end; others wait meanwhile.
/// When it throws, its caller gets the exception, and the next one tries.
///
/// Threads: any ULT or thread; `what` may wait, but not for a call with the same flag.
/// Failure: throws error{invalid} when it would have to wait inside a tasklet, timer callback or
///          poller.
/// Cost:    when it is done, one load.
template <typename Function, typename... Arguments>
void call_once(once_flag& flag, Function&& what, Arguments&&... arguments) {
    if (flag.done_.load(std::memory_order_acquire)) return;
    const std::lock_guard hold(flag.doing_);
    if (flag.done_.load(std::memory_order_relaxed)) return;
    std::invoke(std::forward<Function>(what), std::forward<Arguments>(arguments)...);
    flag.done_.store(true, std::memory_order_release);
}

}  // namespace amalgam
