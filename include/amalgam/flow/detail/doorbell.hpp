#pragma once

#include <atomic>

#include <amalgam/flow/detail/wait_clock.hpp>
#include <amalgam/tasks/detail/thread_barrier.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// Throws error{canceled}: whoever waits for another node, or would, learns so that the run is
/// being stopped.
[[noreturn]] void throw_stopped();

/// Where one end of one or of several queues waits for what their other ends do.
///
/// Threads: wait_until() by one, a ULT or a plain thread; ring() from any.
/// Cost:    ring() reads one word, unless somebody waits.
class doorbell {
public:
    doorbell() = default;
    doorbell(const doorbell&) = delete;
    doorbell& operator=(const doorbell&) = delete;

    /// Wakes who waits. What was published before, by a seq_cst store, is seen by its next look;
    /// by a release store only after expect_light_rings(), or from the thread of who waits.
    void ring() noexcept {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (waits_.load(std::memory_order_seq_cst) != nullptr) wake();
    }
    /// Who waits pays for those who ring from other threads. Before the first wait.
    void expect_light_rings() noexcept { light_rings_ = true; }

    /// Returns when `ready()`, which is asked again after each ring and must not throw. `what` is
    /// for list_ults(): a literal.
    template <typename Ready>
    void wait_until(const char* what, Ready&& ready) {
        if (ready()) return;
        const counted_wait counted(clock_);
        park_until(what, ready);
    }

    /// The same, for who waits for others that run at the same time: it lets others run a few
    /// times first, as a wake-up across streams costs some twenty times as much as a yield.
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

    /// Counts how long is waited here. Before the first wait.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }

private:
    template <typename Ready>
    void park_until(const char* what, Ready&& ready) {
        while (!ready()) {
            waiter me;
            me.waits_for(what);
            waits_.store(&me);
            if (light_rings_) barrier_on_all_threads();
            // Looked at again after the pointer is out; taken back if there is no need to wait.
            const bool wait = !ready();
            if (wait || waits_.exchange(nullptr) == nullptr) me.park();
        }
    }
    static constexpr int yields_before_park = 64;

    // Whoever takes the pointer owes its owner exactly one unpark().
    void wake() noexcept {
        if (waiter* waiting = waits_.exchange(nullptr)) waiting->unpark();
    }

    std::atomic<waiter*> waits_{nullptr};
    wait_clock* clock_ = nullptr;
    bool light_rings_ = false;
};

}  // namespace amalgam::detail
