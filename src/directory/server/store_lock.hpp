#pragma once

#include <atomic>

namespace amalgam::detail {

/// A lock for a few instructions, taken on an engine's stream for each message: std::mutex with
/// what is common inline, which saves some 90 of the 1,000 instructions of a message.
///
/// Threads: any. Waits in the kernel, so a holder that was preempted costs the others nothing.
class store_lock {
public:
    void lock() noexcept {
        int expected = is_free;
        if (!state_.compare_exchange_strong(expected, is_held, std::memory_order_acquire,
                                            std::memory_order_relaxed)) [[unlikely]]
            wait();
    }
    void unlock() noexcept {
        // Afterwards this may be gone: notify_one() uses its address only.
        if (state_.exchange(is_free, std::memory_order_release) == is_wanted) [[unlikely]]
            state_.notify_one();
    }

private:
    enum : int { is_free, is_held, is_wanted };

    [[gnu::noinline]] void wait() noexcept {
        while (state_.exchange(is_wanted, std::memory_order_acquire) != is_free)
            state_.wait(is_wanted, std::memory_order_relaxed);
    }

    std::atomic<int> state_{is_free};
};

}  // namespace amalgam::detail
