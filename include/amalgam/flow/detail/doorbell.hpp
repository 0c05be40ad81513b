#pragma once

#include <atomic>

#include <amalgam/tasks/parking.hpp>

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

    /// Wakes who waits. What was published before, by a seq_cst store, is seen by its next look.
    void ring() noexcept {
        if (waits_.load(std::memory_order_seq_cst) != nullptr) wake();
    }

    /// Returns when `ready()`, which is asked again after each ring and must not throw. `what` is
    /// for list_ults(): a literal.
    template <typename Ready>
    void wait_until(const char* what, Ready&& ready) {
        while (!ready()) {
            waiter me;
            me.waits_for(what);
            waits_.store(&me);
            // Looked at again after the pointer is out; taken back if there is no need to wait.
            const bool wait = !ready();
            if (wait || waits_.exchange(nullptr) == nullptr) me.park();
        }
    }

private:
    // Whoever takes the pointer owes its owner exactly one unpark().
    void wake() noexcept {
        if (waiter* waiting = waits_.exchange(nullptr)) waiting->unpark();
    }

    std::atomic<waiter*> waits_{nullptr};
};

}  // namespace amalgam::detail
