#pragma once

#include <atomic>
#include <chrono>

#include <amalgam/tasks/extension/cpu_relax.hpp>

#include "sync/wait_queue.hpp"
#include "units/blocked.hpp"

namespace amalgam::argobots {

/// Who waits for an object, and the lock of that object, which is held for a few instructions.
/// Argobots' programs free an object once it is set, though those that it woke have not run yet.
/// So these touch nothing of it any more. Whose deadline has passed before it was woken still takes
/// itself out of the line, for which the free waits.
///
/// Valid as zero bytes.
class waiting_line {
public:
    using deadline = std::chrono::steady_clock::time_point;

    class locked {
    public:
        explicit locked(waiting_line& which) noexcept : line_(which) {
            while (line_.busy_.exchange(true, std::memory_order_acquire))
                detail::cpu_relax();
        }
        ~locked() {
            if (held_) unlock();
        }
        locked(const locked&) = delete;
        locked& operator=(const locked&) = delete;

        /// But for those whose deadline has passed.
        bool anybody() const noexcept { return line_.waiting_.anybody_waits(); }
        void push(queued& one) noexcept { line_.waiting_.push(one); }
        void unlock() noexcept {
            held_ = false;
            line_.busy_.store(false, std::memory_order_release);
        }
        /// Each unlocks first: whoever is woken may free the object.
        void unlock_and_wake_one() noexcept;
        void unlock_and_wake_all() noexcept;
        /// Unlocks, and waits to be woken. False: the deadline, if any, passed first. What it waits
        /// for: `what` for a tool, `words` for lists of ULTs.
        bool unlock_and_wait(awaited what, const char* words, const deadline* until = nullptr);

    private:
        waiting_line& line_;
        bool held_ = true;
    };

    /// Waits to be woken; `me` is in it, made for that deadline. False: the deadline, if any,
    /// passed first, and it is not.
    bool park(queued& me, const deadline* until);
    /// Before the object is freed, when nobody waits any more: until the last has left the line.
    void let_leave() noexcept;

private:
    std::atomic<bool> busy_{false};
    wait_queue waiting_;
};

}  // namespace amalgam::argobots
