#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// How the end of a ULT or tasklet reaches the one who joins it: a word that says who that is.
struct join_state {
    // Nobody yet, or a waiter's address, or one of the two marks.
    static constexpr std::uintptr_t nobody = 0;
    static constexpr std::uintptr_t detached_mark = 1;
    static constexpr std::uintptr_t finished_mark = 2;

    std::atomic<std::uintptr_t> joiner{nobody};
    std::exception_ptr failed;

    bool is_finished() const noexcept {
        return joiner.load(std::memory_order_acquire) == finished_mark;
    }
    bool is_detached() const noexcept {
        return joiner.load(std::memory_order_acquire) == detached_mark;
    }

    /// Parks the caller until it has ended.
    void wait() {
        if (is_finished()) return;
        waiter me;
        me.waits_for("join");
        std::uintptr_t expected = nobody;
        if (joiner.compare_exchange_strong(expected, reinterpret_cast<std::uintptr_t>(&me),
                                           std::memory_order_acq_rel)) {
            me.park();
        }
    }
    /// Nobody will join. True: it has ended, and the caller frees it.
    bool detach() noexcept {
        return joiner.exchange(detached_mark, std::memory_order_acq_rel) == finished_mark;
    }
    /// It has ended. True: it was detached, and the caller frees it; else whoever joins may have
    /// freed it by now.
    bool finish() noexcept {
        if (is_detached()) return true;
        const std::uintptr_t told = joiner.exchange(finished_mark, std::memory_order_acq_rel);
        if (told == detached_mark) return true;
        if (told != nobody) reinterpret_cast<waiter*>(told)->unpark();
        return false;
    }
};

}  // namespace amalgam::detail
