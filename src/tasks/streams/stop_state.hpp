#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// How far the stop of a stream has come, and who waits for that.
///
/// Threads: any.
class stop_state {
public:
    enum class stage : unsigned char { open, stopping, thread_ended, stopped };

    /// True: the caller is the first, and stops the stream; others wait_for() that.
    bool begin() noexcept;
    void reach(stage what) noexcept;
    bool reached(stage what) const noexcept;
    /// The stream starts again.
    void reopen() noexcept;
    /// Parks the caller; a tasklet or callback, which cannot park, blocks its stream.
    void wait_for(stage what);

    /// The loop ends soon.
    void ask() noexcept { asked_.store(true, std::memory_order_seq_cst); }
    bool asked() const noexcept { return asked_.load(std::memory_order_relaxed); }
    /// As half of the protocol with a stream that goes to sleep: see bell.hpp.
    bool asked_before_sleep() const noexcept { return asked_.load(std::memory_order_seq_cst); }

    /// Work that is still ready then is left. The earliest limit counts.
    void limit_to(std::chrono::nanoseconds from_now) noexcept;
    bool is_late() const noexcept;
    void give_up() noexcept { gave_up_.store(true, std::memory_order_relaxed); }
    bool gave_up() const noexcept { return gave_up_.load(std::memory_order_relaxed); }

private:
    using time_point = std::chrono::steady_clock::time_point;
    struct waiting {
        stage until;
        waiting* next;
        waiter who;
    };

    std::atomic<bool> asked_{false};
    std::atomic<bool> gave_up_{false};
    std::atomic<time_point::rep> by_{time_point::max().time_since_epoch().count()};
    mutable std::mutex lock_;
    unsigned lives_ = 0;               // under the lock
    stage stage_ = stage::open;        // under the lock
    waiting* waiting_ = nullptr;       // the same
    std::condition_variable reached_;  // for those who cannot park
};

}  // namespace amalgam::detail
