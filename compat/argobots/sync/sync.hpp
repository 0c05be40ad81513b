#pragma once

#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "runtime.hpp"
#include "sync/waiting_line.hpp"

// All of these are valid as zero bytes, which is what the static initializers are.

/// Owner identity of a recursive one: the address of the task's own guest() pointer.
struct ABT_mutex_opaque {
    std::uint64_t recursive = 0;
    amalgam::argobots::open_mutex lock;
    std::atomic<const void*> owner{nullptr};
    std::uint64_t depth = 0;  ///< Beyond the first; the owner's.
};
struct ABT_mutex_attr_opaque {
    bool recursive = false;
};
struct ABT_cond_opaque {
    amalgam::argobots::waiting_line line;
    ABT_mutex with = nullptr;  ///< The mutex of those that wait.
};
struct ABT_eventual_opaque {
    amalgam::argobots::waiting_line line;
    void* value = nullptr;
    int bytes = 0;
    bool ready = false;
};

static_assert(sizeof(ABT_mutex_opaque) <= sizeof(ABT_mutex_memory));
static_assert(sizeof(ABT_cond_opaque) <= sizeof(ABT_cond_memory));
static_assert(sizeof(ABT_eventual_opaque) <= sizeof(ABT_eventual_memory));

namespace amalgam::argobots {

/// A lock that counts its waiters as blocked.
class locked_by_caller {
public:
    /// `what`: the lock is a part of it.
    explicit locked_by_caller(mutex& which, awaited what = {})
        : what_(what), lock_(which, std::defer_lock) {
        if (which.try_lock()) {
            lock_ = std::unique_lock(which, std::adopt_lock);
        } else {
            const blocked while_waiting(what_);
            lock_.lock();
        }
    }
    void wait(condition_variable& until) {
        const blocked while_waiting(what_);
        until.wait(lock_);
    }

private:
    const awaited what_;
    std::unique_lock<mutex> lock_;
};

/// A time of CLOCK_REALTIME, as POSIX has it, by the steady clock.
std::chrono::steady_clock::time_point deadline_at(const timespec& realtime) noexcept;

}  // namespace amalgam::argobots
