#pragma once

#include <atomic>
#include <mutex>

namespace amalgam::detail {

/// Wakes a sleeping stream. Bells are reused, never freed: a thread that has just pushed the last
/// unit of a stream may ring after that stream is gone. That wakes a later stream without need, and
/// does no harm.
///
/// Protocol: the stream stores `asleep`, then checks its queues; a pusher writes a queue, then
/// loads `asleep`. All four are seq_cst: they access different words, and a weaker order lets each
/// side miss the other. Not fences: ThreadSanitizer does not model them.
struct bell {
    std::atomic<bool> asleep{false};
    int fd = -1;  ///< eventfd; -1 for driven streams that are not wakeable: they never sleep.
    bell* next = nullptr;

    /// Wakes the stream if it sleeps or is about to. Cost: one load if it is awake.
    void ring() noexcept {
        if (claim()) strike();
    }
    /// True: it sleeps, and this caller must strike().
    bool claim() noexcept {
        return asleep.load(std::memory_order_seq_cst) &&
               asleep.exchange(false, std::memory_order_seq_cst);
    }
    void strike() noexcept;
    /// Called by the stream: reads its eventfd after a ring.
    void drain() noexcept;

    /// Failure: throws error{no_memory} if the OS grants no eventfd, or std::bad_alloc.
    static bell& take(bool can_sleep);
    static void give_back(bell& used) noexcept;
    struct giver {
        void operator()(bell* used) const noexcept { give_back(*used); }
    };
    static std::mutex& shelf_lock() noexcept;  ///< See forks.hpp.
};

}  // namespace amalgam::detail
