#pragma once

#include <atomic>

#include <sched.h>

namespace ff {

/// A spin lock that gives up its processor after some attempts. Threads: any.
struct lock_t {
    std::atomic<bool> taken{false};
};
/// FastFlow's name for a lock on a cache line of its own.
struct alignas(64) CLHSpinLock : lock_t {};

inline void init_unlocked(lock_t& lock) {
    lock.taken.store(false, std::memory_order_relaxed);
}
inline void init_locked(lock_t& lock) {
    lock.taken.store(true, std::memory_order_relaxed);
}
inline void spin_lock(lock_t& lock) {
    for (unsigned attempt = 0; lock.taken.exchange(true, std::memory_order_acquire);)
        if (++attempt % 64 == 0) sched_yield();
}
inline void spin_unlock(lock_t& lock) {
    lock.taken.store(false, std::memory_order_release);
}

}  // namespace ff

using ff::lock_t;
