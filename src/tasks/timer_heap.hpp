#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/timer.hpp>

namespace amalgam::detail {

/// The armed timers of one stream, earliest first: a pairing heap through the timers
/// themselves, so arming cannot fail.
///
/// Threads: any; a spin lock is held for the few pointers of each change, never while a
///          callback runs.
class timer_heap {
public:
    using time_point = timer::time_point;

    /// True: it is the earliest now, so a sleeping stream must be woken.
    bool arm(timer& what, time_point when) noexcept;
    /// `wait`: when its callback is running, wait for the end of it.
    bool cancel(timer& what, bool wait) noexcept;
    /// Runs what is due at `now` and was armed before the call; returns how many.
    std::size_t fire(time_point now) noexcept;

    /// time_point::max(): none is armed. Cost: one load.
    time_point earliest() const noexcept {
        return time_point(time_point::duration(earliest_.load(std::memory_order_seq_cst)));
    }

private:
    static bool before(const timer& a, const timer& b) noexcept;
    static timer* meld(timer* a, timer* b) noexcept;
    static timer* meld_siblings(timer* first) noexcept;
    void insert(timer& what) noexcept;
    void take_out(timer& what) noexcept;
    void note_earliest() noexcept;

    spin_lock lock_;
    timer* root_ = nullptr;
    std::uint64_t next_order_ = 0;
    std::atomic<timer*> firing_{nullptr};
    std::atomic<time_point::rep> earliest_{time_point::max().time_since_epoch().count()};
};

}  // namespace amalgam::detail
