#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include <amalgam/tasks/parking.hpp>

namespace amalgam {

class pool;

namespace detail {

class dispatcher;

/// How a ULT or tasklet reports its end to the joiner, whose identity is kept in one word.
///
/// Units that a stream creates in its own pool usually also end there before anybody joins, and an
/// atomic exchange would cost as much as the rest of a tasklet. So switcher::end() reads and writes
/// the word in two separate steps, which it announces. Any other thread that writes the word then
/// checks that no stream was between those steps: overwritten().
struct join_state {
    // Nobody yet, a waiter's address, perhaps with the bit may_leave, or one of the marks.
    static constexpr std::uintptr_t nobody = 0;
    static constexpr std::uintptr_t detached_mark = 1;
    static constexpr std::uintptr_t detaching_mark = 2;  // the detacher may still free it
    static constexpr std::uintptr_t finished_mark = 3;
    static constexpr std::uintptr_t finished_alone_mark = 4;  // in switcher::end(): notified nobody

    /// The waiter may take itself back, so only who has exchanged the word may look at it.
    static constexpr std::uintptr_t may_leave = 1;
    static_assert(alignof(waiter) > may_leave);

    std::atomic<std::uintptr_t> joiner{nobody};
    std::exception_ptr failed;
    bool made_at_home = false;  ///< Created by the stream it was created for; see switcher::end().

    bool is_finished() const noexcept {
        const std::uintptr_t now = joiner.load(std::memory_order_acquire);
        return now == finished_mark || now == finished_alone_mark;
    }
    bool is_detached() const noexcept {
        return joiner.load(std::memory_order_acquire) == detached_mark;
    }

    // `at_home`: the calling thread is the stream that ends the unit.

    /// Parks the caller until the unit has ended.
    void wait(bool at_home) {
        if (is_finished()) return;
        waiter me;
        me.waits_for("join");
        const auto mine = reinterpret_cast<std::uintptr_t>(&me);
        std::uintptr_t expected = nobody;
        if (at_home) {
            joiner.store(mine, std::memory_order_relaxed);
        } else if (!joiner.compare_exchange_strong(expected, mine, std::memory_order_acq_rel) ||
                   (made_at_home && overwritten())) {
            return;
        }
        me.park();
    }
    /// The same until `deadline`: false. `home`: of the unit; `here`: what runs the caller, or
    /// null. Throws error{canceled}; error{closed} if nobody will end it.
    bool ends_by(waiter::time_point deadline, pool* home, dispatcher* here);
    /// Nobody will join. True: the unit has ended, and the caller frees it.
    bool detach(bool at_home) noexcept {
        if (is_finished()) return true;
        if (at_home) {
            joiner.store(detached_mark, std::memory_order_relaxed);
            return false;
        }
        if (made_at_home) return detach_from_elsewhere();
        return joiner.exchange(detached_mark, std::memory_order_acq_rel) == finished_mark;
    }
    /// The unit has ended. True: it was detached, and the caller frees it; else the joiner may
    /// already have freed it.
    bool finish() noexcept;

private:
    bool wait_until(bool at_home, waiter::time_point deadline);
    /// The calling thread wrote the word: did the ender miss that? False: the ender sees it, or has
    /// seen it. Cost: microseconds, for a barrier on all threads.
    bool overwritten() const noexcept;
    bool detach_from_elsewhere() noexcept;
};

}  // namespace detail

}  // namespace amalgam
