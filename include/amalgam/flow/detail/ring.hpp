#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/doorbell.hpp>
#include <amalgam/flow/detail/tidy.hpp>

namespace amalgam::detail {

/// Common part of every queue between two nodes of one process: the two ends of a bounded queue,
/// and how each waits for the other.
///
/// Threads: one producer and one consumer, each a ULT or a plain thread; stop() by any.
/// Failure: once stopped, both ends throw error{canceled} at the next item.
class ring_core {
public:
    virtual ~ring_core() = default;
    ring_core(const ring_core&) = delete;
    ring_core& operator=(const ring_core&) = delete;

    /// Producer: ends the stream.
    void close() noexcept;
    /// Producer: marks this place of the stream, for that checkpoint. The consumer finds no item
    /// behind it before take_mark(). One at a time. Takes no slot, so it never waits.
    void mark(std::uint64_t number) noexcept;
    /// Ends both sides early, whether they are waiting or come later.
    void stop() noexcept;

    /// Records how long each end waits, unless it waits for several queues. Before the run.
    void count_waits(wait_clock& producer, wait_clock& consumer) noexcept {
        own_producer_bell_.count_waits(producer);
        own_consumer_bell_.count_waits(consumer);
    }
    /// Items whose slots were returned; equals all items taken once the consumer has waited.
    std::uint64_t taken() const noexcept { return head_.load(std::memory_order_relaxed); }
    /// Maximum fill level, sampled when slots are returned.
    std::uint64_t deepest() const noexcept { return deepest_.load(std::memory_order_relaxed); }

    /// Total items published. Exact for the producer, a snapshot for others.
    std::uint64_t published() const noexcept { return tail_.load(std::memory_order_relaxed); }

    // For ends with several queues: they wait on one doorbell for all.
    void share_consumer_bell(doorbell& shared) noexcept;
    void share_producer_bell(doorbell& shared) noexcept { producer_bell_ = &shared; }
    /// seq_cst: who waits at a shared bell looks here after it said so.
    bool is_stopped() const noexcept { return stopped_.load(std::memory_order_seq_cst); }

    /// Producer: true if a push would not wait.
    bool has_room() noexcept {
        return pushed_ - head_seen_ != capacity_ ||
               (look_for_room(), pushed_ - head_seen_ != capacity_);
    }
    /// Producer: the consumer's backlog, including the item in progress.
    std::uint64_t before_consumer() noexcept {
        look_for_room();
        return pushed_ - head_seen_;
    }
    /// Consumer: true if front() would not wait for an item.
    bool has_item_now() noexcept { return popped_ != tail_seen_ || look_for_item(); }
    /// Consumer: empty, and the stream has ended.
    bool is_over() noexcept { return closed_.load() && !look_for_item() && !is_at_mark(); }
    /// Consumer: the next thing is a mark.
    bool is_at_mark() const noexcept { return popped_ == mark_.load(std::memory_order_seq_cst); }
    /// Consumer, at a mark: goes on behind it. Returns its checkpoint.
    std::uint64_t take_mark() noexcept {
        mark_.store(no_mark, std::memory_order_seq_cst);
        return marked_for_;
    }
    /// Consumer: returns the slots it has taken, before it turns to other inputs.
    void rest() noexcept { give_room_back(); }

protected:
    ring_core(std::size_t capacity, bool across_streams);

    std::size_t slot_for_push() {
        if (pushed_ - head_seen_ == capacity_ || stopped_seen()) wait_for_room();
        return static_cast<std::size_t>(pushed_ & mask_);
    }
    void finish_push() noexcept {
        ++pushed_;
        // The store and the bell's load touch different words: with a weaker order than seq_cst
        // each side can miss the other, and the consumer would sleep on this item. An exchange per
        // item would dominate the cost of a hop, so the consumer orders both sides when it falls
        // asleep (see doorbell).
        if (light_)
            tail_.store(pushed_, std::memory_order_release);
        else
            tail_.store(pushed_, std::memory_order_seq_cst);
        consumer_bell_->ring();
    }
    /// False at the end of the stream, and at a mark.
    bool has_item() { return (popped_ != tail_seen_ && !stopped_seen()) || wait_for_item(); }
    std::size_t slot_for_pop() const noexcept { return static_cast<std::size_t>(popped_ & mask_); }
    void finish_pop() noexcept {
        // Slots are returned in portions, to touch the producer's cache lines rarely.
        if ((++popped_ & portion_mask_) == 0) give_room_back();
    }
    /// Number of slots: capacity_, rounded up.
    std::size_t slots() const noexcept { return static_cast<std::size_t>(mask_) + 1; }

private:
    bool stopped_seen() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    void look_for_room() noexcept { head_seen_ = head_.load(std::memory_order_seq_cst); }
    bool look_for_item() noexcept {
        // In this order: who sees an item behind a mark sees the mark. So has_item() need not ask.
        const std::uint64_t tail = tail_.load(std::memory_order_seq_cst);
        tail_seen_ = std::min(tail, mark_.load(std::memory_order_relaxed));
        return popped_ != tail_seen_;
    }
    void wait_for_room();
    bool wait_for_item();
    void let_items_gather() noexcept;
    void give_room_back() noexcept;

    std::size_t capacity_;
    std::uint64_t mask_;  // Number of slots, a power of two, minus 1.
    std::uint64_t portion_mask_;

    static constexpr std::uint64_t no_mark = std::numeric_limits<std::uint64_t>::max();

    alignas(64) std::atomic<std::uint64_t> tail_{0};
    std::atomic<std::uint64_t> mark_{no_mark};  // The items before it.
    std::uint64_t marked_for_ = 0;              // Its checkpoint.
    std::uint64_t pushed_ = 0;                  // The producer's own copy of tail_.
    std::uint64_t head_seen_ = 0;               // What the producer last saw of head_.

    alignas(64) std::atomic<std::uint64_t> head_{0};
    std::uint64_t popped_ = 0;     // The consumer's own position, at or past head_.
    std::uint64_t tail_seen_ = 0;  // What the consumer last saw of tail_.
    std::atomic<std::uint64_t> deepest_{0};
    unsigned skips_when_in_vain_ = 0;  // How many gathers to skip after one without effect.
    unsigned skips_left_ = 0;

    // Read at every push; written only when an end waits or the stream ends.
    alignas(64) doorbell own_consumer_bell_;
    doorbell own_producer_bell_;
    doorbell* consumer_bell_ = &own_consumer_bell_;
    doorbell* producer_bell_ = &own_producer_bell_;
    std::atomic<bool> closed_{false};
    std::atomic<bool> stopped_{false};
    const bool across_streams_;
    const bool light_;  ///< A push publishes without an exchange.
};

/// A lock-free queue between two nodes. Items are created and consumed in place.
///
/// Cost:    a push is a move of the item and a plain store; no allocation.
template <typename T>
class ring final : public ring_core {
public:
    /// Holds `items`, at least 1. `across_streams`: the ends run concurrently, so a short wait is
    /// worthwhile.
    ring(std::size_t items, bool across_streams)
        : ring_core(items, across_streams), slots_(new T[slots()]()) {}

    /// Waits while full.
    template <typename Item>
    void push(Item&& item) {
        slots_[slot_for_push()] = std::forward<Item>(item);
        finish_push();
    }
    /// The next item, in place until pop(); waits while empty. nullptr at the end, and at a mark.
    T* front() { return has_item() ? &slots_[slot_for_pop()] : nullptr; }
    void pop() {
        tidy(slots_[slot_for_pop()]);
        finish_pop();
    }

private:
    std::unique_ptr<T[]> slots_;
};

/// The unbounded variant, for the feedback of a loop: a node that waited there for room could be
/// waiting for itself.
///
/// Cost:    as ring, plus a chunk of memory per 256 items.
template <typename T>
class growing_ring final : public ring_core {
public:
    explicit growing_ring(bool across_streams)
        : ring_core(std::size_t{1} << 62, across_streams), first_(std::make_unique<chunk>()) {
        push_chunk_ = pop_chunk_ = first_.get();
    }
    ~growing_ring() override {
        while (first_)
            first_ = std::move(first_->next);  // Not recursively.
    }

    template <typename Item>
    void push(Item&& item) {
        const std::size_t at = slot_for_push() % chunk_items;
        // Only once, even if copying the item throws and another follows.
        if (at == 0 && grown_for_ != slot_for_push()) {
            push_chunk_->next = std::make_unique<chunk>();
            push_chunk_ = push_chunk_->next.get();
            grown_for_ = slot_for_push();
        }
        push_chunk_->items[at] = std::forward<Item>(item);
        finish_push();
    }
    T* front() {
        if (!has_item()) return nullptr;
        const std::size_t at = slot_for_pop() % chunk_items;
        if (at == 0 && moved_on_ != slot_for_pop()) {
            moved_on_ = slot_for_pop();
            pop_chunk_ = pop_chunk_->next.get();
            first_ = std::move(first_->next);
        }
        return &pop_chunk_->items[at];
    }
    void pop() {
        tidy(pop_chunk_->items[slot_for_pop() % chunk_items]);
        finish_pop();
    }

private:
    static constexpr std::size_t chunk_items = 256;
    struct chunk {
        T items[chunk_items]{};
        std::unique_ptr<chunk> next;
    };

    std::unique_ptr<chunk> first_;  ///< The consumer's; earlier chunks are freed.
    chunk* push_chunk_ = nullptr;
    chunk* pop_chunk_ = nullptr;
    std::size_t grown_for_ = 0;  ///< Where the producer last moved to a new chunk.
    std::size_t moved_on_ = 0;   ///< Likewise, the consumer.
};

}  // namespace amalgam::detail
