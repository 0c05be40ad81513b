#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/core/clock.hpp>

namespace amalgam::detail {

/// Total time spent waiting, in ticks of cycles().
///
/// Threads: begin() and end() by the waiter; ticks() by any.
/// Cost:    two reads of the counter per wait.
class wait_clock {
public:
    void begin() noexcept { since_.store(cycles(), std::memory_order_relaxed); }
    void end() noexcept {
        const std::uint64_t now = cycles(), since = since_.load(std::memory_order_relaxed);
        since_.store(0, std::memory_order_relaxed);
        if (now > since)
            waited_.store(waited_.load(std::memory_order_relaxed) + (now - since),
                          std::memory_order_relaxed);
    }
    bool is_waiting() const noexcept { return since_.load(std::memory_order_relaxed) != 0; }
    /// Includes the wait in progress.
    std::uint64_t ticks(std::uint64_t now) const noexcept {
        const std::uint64_t since = since_.load(std::memory_order_relaxed);
        const std::uint64_t before = waited_.load(std::memory_order_relaxed);
        return since != 0 && now > since ? before + (now - since) : before;
    }

private:
    std::atomic<std::uint64_t> waited_{0};
    std::atomic<std::uint64_t> since_{0};  ///< 0: not waiting.
};

/// Records a wait while it lives, if there is a clock.
class counted_wait {
public:
    explicit counted_wait(wait_clock* clock) noexcept : clock_(clock) {
        if (clock_ != nullptr) clock_->begin();
    }
    ~counted_wait() {
        if (clock_ != nullptr) clock_->end();
    }
    counted_wait(const counted_wait&) = delete;
    counted_wait& operator=(const counted_wait&) = delete;

private:
    wait_clock* clock_;
};

}  // namespace amalgam::detail
