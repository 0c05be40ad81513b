#pragma once

#include <atomic>
#include <mutex>

namespace amalgam::detail {

/// What wakes a sleeping stream. Bells are reused, never freed: a thread that has just
/// pushed the last unit of a stream may ring after that stream is gone, which wakes some
/// later stream for nothing, and harms nobody.
///
/// Handshake: the stream stores asleep, then looks at its queues; a pusher writes a
/// queue, then loads asleep. All four are seq_cst: they touch different words, and a
/// weaker order lets each side miss the other. Not fences: ThreadSanitizer does not
/// model them.
struct bell {
    std::atomic<bool> asleep{false};
    int fd = -1;  ///< eventfd; -1 for driven streams, which never sleep.
    bell* next = nullptr;

    /// Wakes the stream if it sleeps or is about to. Cost: one load when it is awake.
    void ring() noexcept {
        if (claim()) strike();
    }
    /// True: it sleeps, and the caller is the one who must strike().
    bool claim() noexcept {
        return asleep.load(std::memory_order_seq_cst) &&
               asleep.exchange(false, std::memory_order_seq_cst);
    }
    void strike() noexcept;
    /// The stream read its eventfd after a ring.
    void drain() noexcept;

    /// Failure: throws error{no_memory} when the OS gives no eventfd, or std::bad_alloc.
    static bell& take(bool can_sleep);
    static void give_back(bell& used) noexcept;
    static std::mutex& shelf_lock() noexcept;  ///< See forks.hpp.
};

}  // namespace amalgam::detail
