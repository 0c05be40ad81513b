#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <amalgam/flow/detail/tidy.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// What every edge between two nodes of one process has, whatever flows through it: a bounded
/// queue's two ends, and how each end waits for the other.
///
/// Threads: one producer and one consumer, each a ULT or a plain thread; stop() from any.
/// Failure: once stopped, both ends throw error{canceled} at the next item.
class ring_core {
public:
    virtual ~ring_core() = default;
    ring_core(const ring_core&) = delete;
    ring_core& operator=(const ring_core&) = delete;

    /// Producer: no more will come.
    void close() noexcept;
    /// Both ends end early, whether they wait now or come later.
    void stop() noexcept;

    /// Items ever published. Exact for the producer, a snapshot for others.
    std::uint64_t published() const noexcept { return tail_.load(std::memory_order_relaxed); }

protected:
    ring_core(std::size_t capacity, bool across_streams);

    std::size_t slot_for_push() {
        if (pushed_ - head_seen_ == capacity_ || is_stopped()) wait_for_room();
        return static_cast<std::size_t>(pushed_ & mask_);
    }
    void finish_push() noexcept {
        ++pushed_;
        // seq_cst here and in wait_for_item(), not release/acquire: store and load touch
        // different words, and a weaker order lets each side miss the other, so that the
        // consumer would sleep on this item. Not a fence: ThreadSanitizer models none.
        tail_.store(pushed_, std::memory_order_seq_cst);
        if (consumer_waits_.load(std::memory_order_seq_cst) != nullptr) wake(consumer_waits_);
    }
    /// False at the end of the stream.
    bool has_item() { return (popped_ != tail_seen_ && !is_stopped()) || wait_for_item(); }
    std::size_t slot_for_pop() const noexcept { return static_cast<std::size_t>(popped_ & mask_); }
    void finish_pop() noexcept {
        // Room is handed back in portions, to touch the producer's lines seldom.
        if ((++popped_ & portion_mask_) == 0) give_room_back();
    }
    std::size_t capacity() const noexcept { return capacity_; }
    bool is_stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

private:
    static void wake(std::atomic<waiter*>& who) noexcept;
    void wait_for_room();
    bool wait_for_item();
    void give_room_back() noexcept;

    std::size_t capacity_;  // A power of two.
    std::uint64_t mask_;
    std::uint64_t portion_mask_;

    alignas(64) std::atomic<std::uint64_t> tail_{0};
    std::uint64_t pushed_ = 0;     // The producer's own copy of tail_.
    std::uint64_t head_seen_ = 0;  // What the producer last saw of head_.

    alignas(64) std::atomic<std::uint64_t> head_{0};
    std::uint64_t popped_ = 0;     // The consumer's own position, at or past head_.
    std::uint64_t tail_seen_ = 0;  // What the consumer last saw of tail_.

    // Read at every push, written only when somebody waits or something ends.
    alignas(64) std::atomic<waiter*> consumer_waits_{nullptr};
    std::atomic<waiter*> producer_waits_{nullptr};
    std::atomic<bool> closed_{false};
    std::atomic<bool> stopped_{false};
    const bool across_streams_;
};

/// A lock-free queue from one node to the next. Items are made and used in their slots.
///
/// Cost: a push is one atomic exchange and the item's move; no allocation.
template <typename T>
class ring final : public ring_core {
public:
    /// Holds `items`, rounded up to a power of two, at least 2. `across_streams`: its ends run
    /// at the same time, so a short wait is worth trying.
    ring(std::size_t items, bool across_streams)
        : ring_core(items, across_streams), slots_(new T[capacity()]()) {}

    /// Waits while full.
    template <typename Item>
    void push(Item&& item) {
        slots_[slot_for_push()] = std::forward<Item>(item);
        finish_push();
    }
    /// The next item, in its slot until pop(); waits while empty. nullptr at the end.
    T* front() { return has_item() ? &slots_[slot_for_pop()] : nullptr; }
    void pop() {
        tidy(slots_[slot_for_pop()]);
        finish_pop();
    }

private:
    std::unique_ptr<T[]> slots_;
};

}  // namespace amalgam::detail
