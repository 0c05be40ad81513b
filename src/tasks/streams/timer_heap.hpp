#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/timer.hpp>

namespace amalgam::detail {

class dispatcher;
struct bell;

/// The armed timers of one stream, earliest first: an intrusive pairing heap, so arming cannot
/// fail.
///
/// Heaps are reused, never freed: a timer may move to another stream's heap at any time. Whoever
/// locks the old heap notices that and locks the new one.
///
/// Threads: any; a spin lock is held for the few pointers of each change, never while a callback
///          runs.
class timer_heap {
public:
    using time_point = timer::time_point;

    constexpr timer_heap() = default;

    /// Returns an empty heap. Failure: std::bad_alloc.
    static timer_heap& take();
    /// Timers still armed never fire.
    static void give_back(timer_heap& used) noexcept;
    struct giver {
        void operator()(timer_heap* used) const noexcept { give_back(*used); }
    };

    /// `of` fires it from now on. Takes over waits whose stream has stopped without a successor.
    void open(dispatcher& of, bell& rings) noexcept;
    /// `of` has stopped: waits move to other streams, or stay until one starts; other timers stay
    /// and never fire.
    void close() noexcept;

    /// In a fork() child, for a stream of the parent: stops firing and accepting waits.
    void end_in_child() noexcept { closed_ = true; }
    /// See forks.hpp. In locking order.
    template <typename What>
    static void for_each_lock(What what) {
        what(shelf_lock());
        what(homeless_lock());
    }

    static void arm(timer& what, time_point when) noexcept;
    /// If its callback is running on another thread, waits for it to end.
    static bool cancel(timer& what) noexcept;
    /// Runs timers due at `now` that were armed before the call; returns how many.
    std::size_t fire(time_point now) noexcept;

    /// time_point::max(): none is armed. Cost: one load.
    time_point earliest() const noexcept {
        return time_point(time_point::duration(earliest_.load(std::memory_order_seq_cst)));
    }

private:
    static bool before(const timer& a, const timer& b) noexcept;
    static timer* meld(timer* a, timer* b) noexcept;
    static timer* meld_siblings(timer* first) noexcept;
    static timer_heap& lock_that_of(timer& what) noexcept;
    void insert(timer& what) noexcept;
    void take_out(timer& what) noexcept;
    timer* take_all() noexcept;
    void note_earliest() noexcept;
    void move_waits() noexcept;
    void move(timer& what, dispatcher* to) noexcept;

    static std::mutex& shelf_lock() noexcept;
    static spin_lock& homeless_lock() noexcept;

    spin_lock lock_;
    timer* root_ = nullptr;
    std::uint64_t next_order_ = 0;
    std::atomic<bool> closed_{true};  // changed under the lock of the registry
    std::atomic<timer*> firing_{nullptr};
    std::atomic<time_point::rep> earliest_{time_point::max().time_since_epoch().count()};
    std::atomic<dispatcher*> of_{nullptr};  // null: none fires it
    std::atomic<bell*> rings_{nullptr};
    timer_heap* next_ = nullptr;  // on the shelf
};

}  // namespace amalgam::detail
