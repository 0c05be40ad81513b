#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace amalgam::detail {

/// How long a stream has slept, and how often.
///
/// Threads: begin() and end() the stream's; the rest any.
class sleep_times {
public:
    using time_point = std::chrono::steady_clock::time_point;

    void begin(time_point now) noexcept {
        since_.store(now.time_since_epoch().count(), std::memory_order_release);
    }
    void end(time_point now) noexcept {
        const auto slept = now.time_since_epoch().count() - since_.load(std::memory_order_relaxed);
        since_.store(ending, std::memory_order_relaxed);
        total_.store(total_.load(std::memory_order_relaxed) + slept, std::memory_order_release);
        times_.store(times_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        since_.store(0, std::memory_order_release);
    }

    /// With the sleep that lasts. Never less than it said before.
    std::chrono::nanoseconds total() const noexcept {
        for (;; std::this_thread::yield()) {
            const auto since = since_.load(std::memory_order_acquire);
            const auto total = total_.load(std::memory_order_acquire);
            // A sleep that ended in between would be missed, or counted twice.
            if (since == ending || since_.load(std::memory_order_acquire) != since) continue;
            const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
            return time_point::duration(since == 0 ? total : total + now - since);
        }
    }
    std::uint64_t times() const noexcept { return times_.load(std::memory_order_relaxed); }

private:
    static constexpr time_point::rep ending = -1;  // the total is being changed
    std::atomic<time_point::rep> since_{0};        // 0: awake.
    std::atomic<time_point::rep> total_{0};
    std::atomic<std::uint64_t> times_{0};
};

}  // namespace amalgam::detail
