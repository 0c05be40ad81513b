#pragma once

#include <atomic>

namespace amalgam::detail {

/// For a few instructions only; never held across a switch, a park or a system call.
class spin_lock {
public:
    void lock() noexcept {
        if (busy_.exchange(true, std::memory_order_acquire)) lock_slow();
    }
    void unlock() noexcept { busy_.store(false, std::memory_order_release); }

private:
    void lock_slow() noexcept;
    std::atomic<bool> busy_{false};
};

}  // namespace amalgam::detail
