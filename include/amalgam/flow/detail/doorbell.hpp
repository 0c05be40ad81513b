#pragma once

#include <atomic>

#include <amalgam/flow/detail/wait_clock.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// Throws error{canceled}: tells a node that waits for another, or is about to, that the run is
/// being stopped.
[[noreturn]] void throw_stopped();

/// Where one end of one or more queues waits for their other ends.
///
/// Threads: wait_until() by one, a ULT or a plain thread; ring() by any.
/// Cost:    ring() reads one word, unless somebody waits.
class doorbell {
public:
    doorbell() = default;
    doorbell(const doorbell&) = delete;
    doorbell& operator=(const doorbell&) = delete;

    /// Wakes the waiter. Its next check sees anything published before by a seq_cst store. A
    /// release store suffices only after expect_light_rings(), or on the waiter's thread.
    void ring() noexcept {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (waits_.load(std::memory_order_seq_cst) != nullptr) wake();
    }
    /// Moves the cost of rings from other threads to the waiter. Before the first wait.
    void expect_light_rings() noexcept { light_rings_ = true; }

    /// Returns once `ready()` is true; it is called again after each ring and must not throw.
    /// `what` is a string literal for list_ults().
    template <typename Ready>
    void wait_until(const char* what, Ready&& ready) {
        if (ready()) return;
        const counted_wait counted(clock_);
        park_until(what, ready);
    }

    /// The same, for waiting on code that runs concurrently: yields a few times first, because a
    /// wake-up across streams costs about twenty times as much as a yield.
    template <typename Ready>
    void look_and_wait_until(const char* what, Ready&& ready) {
        if (ready()) return;
        const counted_wait counted(clock_);
        for (int i = 0; i < yields_before_park; ++i) {
            this_task::yield();
            if (ready()) return;
        }
        park_until(what, ready);
    }

    /// Records the time spent waiting here. Before the first wait.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }

private:
    template <typename Ready>
    void park_until(const char* what, Ready&& ready) {
        while (!ready()) {
            waiter me;
            me.waits_for(what);
            waits_.store(&me);
            if (light_rings_) barrier_on_all_threads();
            // Checked again after the pointer is published; withdrawn if there is no need to wait.
            const bool wait = !ready();
            if (wait || waits_.exchange(nullptr) == nullptr) me.park();
        }
    }
    static constexpr int yields_before_park = 64;

    // The code that takes the pointer owes its owner exactly one unpark().
    void wake() noexcept {
        if (waiter* waiting = waits_.exchange(nullptr)) waiting->unpark();
    }

    std::atomic<waiter*> waits_{nullptr};
    wait_clock* clock_ = nullptr;
    bool light_rings_ = false;
};

}  // namespace amalgam::detail
