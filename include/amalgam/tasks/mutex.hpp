#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/tasks/detail/wait_list.hpp>

namespace amalgam {

/// Mutual exclusion between ULTs and plain threads, in any mix. Waiting parks the
/// caller. Fair: unlock() hands the mutex to the one that waits longest, so a ULT
/// that yields while it holds the mutex starves nobody.
///
/// Threads: any; unlocked by who locked it. Not recursive.
/// Failure: lock() throws error{invalid} when it would have to wait inside a tasklet,
///          timer callback or poller; use try_lock() there.
/// Cost:    uncontended, one atomic exchange each to lock and unlock.
class mutex {
public:
    mutex() = default;
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    void lock() {
        if (!try_lock()) lock_slow();
    }
    bool try_lock() noexcept {
        std::uint32_t expected = unlocked;
        return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire,
                                              std::memory_order_relaxed);
    }
    void unlock() noexcept {
        std::uint32_t expected = locked;
        if (!state_.compare_exchange_strong(expected, unlocked, std::memory_order_release,
                                            std::memory_order_relaxed)) {
            hand_over();
        }
    }

private:
    enum : std::uint32_t { unlocked, locked, contended };
    void lock_slow();
    void hand_over() noexcept;

    std::atomic<std::uint32_t> state_{unlocked};
    detail::wait_list waiting_;
};

}  // namespace amalgam
