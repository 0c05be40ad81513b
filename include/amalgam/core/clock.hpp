#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/core/detail/chrono.hpp>

namespace amalgam {

/// A source of time: the machine's clock, or one that a test sets.
///
/// Threads: now() may be called concurrently from anywhere.
class clock {
public:
    using duration = std::chrono::steady_clock::duration;  ///< Of the steady clock: nanoseconds.
    /// Of the steady clock, also where a test sets it.
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~clock() = default;
    virtual time_point now() const noexcept = 0;

    /// The machine's monotonic clock. Cost: one vDSO call and one virtual call.
    static clock& steady() noexcept;
};

/// A clock that moves only when told; for deterministic tests and simulations.
///
/// Threads: all members may run concurrently.
class manual_clock final : public clock {
public:
    /// Starts one hour after the epoch, so that subtracting from now() stays positive.
    manual_clock() noexcept : manual_clock(time_point{} + std::chrono::hours(1)) {}
    explicit manual_clock(time_point start) noexcept : now_(start.time_since_epoch().count()) {}

    time_point now() const noexcept override {
        return time_point(duration(now_.load(std::memory_order_acquire)));
    }
    /// Moves its time on by that much; from any thread.
    void advance(duration by) noexcept { now_.fetch_add(by.count(), std::memory_order_acq_rel); }
    /// Precondition: `to` is not before now(); time never runs backwards.
    void advance_to(time_point to) noexcept {
        now_.store(to.time_since_epoch().count(), std::memory_order_release);
    }

private:
    std::atomic<duration::rep> now_;
};

/// A counter that ticks at a fixed, unknown rate. For bounding spins and comparing short intervals
/// on one machine, not for telling time. Cost: about 20 cycles, no system call.
inline std::uint64_t cycles() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();  // Not <x86intrin.h>, which would double what users compile.
#elif defined(__aarch64__)
    std::uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace amalgam
