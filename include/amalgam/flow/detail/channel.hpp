#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/flow/detail/doorbell.hpp>
#include <amalgam/flow/detail/tidy.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// The sending end of an edge that leads to another group. The sending node serializes items into a
/// batch here; the poster of the batch sees only bytes.
///
/// Threads: one producer, a ULT. Another ULT may post at the same time, hence the atomics: a batch
///          is sent while the producer is busy, or blocked, in user code.
/// Failure: throws error{canceled} once the run is stopped.
/// Cost:    per item, a copy of its bytes and one atomic exchange; no allocation.
class channel_out {
public:
    channel_out(const channel_out&) = delete;
    channel_out& operator=(const channel_out&) = delete;

    // Target of basic_archive_writer: the item under construction.
    std::byte* extend(std::size_t bytes) {
        if (bytes > static_cast<std::size_t>(end_ - at_)) make_room(bytes);
        std::byte* to = at_;
        at_ += bytes;
        return to;
    }
    /// Size of the item so far; items are aligned from their own start.
    std::size_t size() const noexcept { return static_cast<std::size_t>(at_ - item_); }

    /// Discards the item under construction.
    void drop_item() noexcept { at_ = item_; }

    /// The item is complete and may be posted.
    void commit() {
        item_ = at_;
        ++items_;
        ++sent_items_;
        // seq_cst here and where starving_ is set, for the same reason as in
        // ring_core::finish_push().
        committed_.store(mark(static_cast<std::size_t>(at_ - begin_), items_),
                         std::memory_order_seq_cst);
        if (starving_.load(std::memory_order_seq_cst)) post_committed();
    }

    /// Posts the rest and sends end of stream to every receiver.
    virtual void end() = 0;
    /// Waits until all receivers have consumed everything. After end().
    virtual void wait_ended() = 0;
    /// Posts the rest, and marks this place of the stream for every receiver, for that checkpoint.
    virtual void mark(std::uint64_t number) = 0;

    // For nodes that send on demand: the receivers' backlog.

    /// Items sent and not yet consumed, averaged over the receivers; never an underestimate.
    std::uint64_t items_before_receivers() const noexcept {
        return (sent_items_ - consumed_items_.load(std::memory_order_seq_cst)) / receivers_;
    }
    /// `shared` is rung when that drops. Before the run.
    void share_bell(doorbell& shared) noexcept { bell_ = &shared; }

    /// Records how long the node waits for room. Before the run.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }
    /// Traffic so far, and items not yet consumed. Any thread.
    struct traffic {
        std::uint64_t items = 0;
        std::uint64_t bytes = 0;
        std::uint64_t waiting = 0;
        std::uint64_t most_waiting = 0;
        std::uint64_t unconsumed_bytes = 0;
    };
    virtual traffic traffic_so_far() const = 0;
    /// seq_cst: who waits at a bell looks here after it said so.
    bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_seq_cst); }

protected:
    explicit channel_out(std::size_t receivers) noexcept : receivers_(receivers) {}
    ~channel_out() = default;

    void ring() noexcept {
        if (bell_ != nullptr) bell_->ring();
    }

    static constexpr std::uint64_t mark(std::size_t bytes, std::uint32_t items) noexcept {
        return std::uint64_t{bytes} << 32 | items;
    }
    static constexpr std::size_t bytes_of(std::uint64_t mark) noexcept { return mark >> 32; }
    static constexpr std::uint32_t items_of(std::uint64_t mark) noexcept {
        return static_cast<std::uint32_t>(mark);
    }

    /// Continues in a larger or new batch with room for `bytes` more of this item.
    virtual void make_room(std::size_t bytes) = 0;
    /// A receiver is idle: posts what there is, without waiting for a full batch.
    virtual void post_committed() = 0;

    // The producer's.
    std::byte* begin_ = nullptr;  // Of the batch.
    std::byte* item_ = nullptr;   // Of the item under construction.
    std::byte* at_ = nullptr;
    std::byte* end_ = nullptr;
    std::uint32_t items_ = 0;
    std::uint64_t sent_items_ = 0;  // Over all batches.

    wait_clock* clock_ = nullptr;
    const std::size_t receivers_;
    std::atomic<std::uint64_t> consumed_items_{0};
    std::atomic<bool> is_stopped_{false};
    // Bytes and items of this batch, packed by mark().
    alignas(64) std::atomic<std::uint64_t> committed_{0};
    alignas(64) std::atomic<bool> starving_{true};

private:
    doorbell* bell_ = nullptr;
};

/// The receiving end of an edge from another group.
///
/// Threads: one consumer, a ULT.
/// Failure: throws error{canceled} once the run is stopped.
class channel_in {
public:
    channel_in(const channel_in&) = delete;
    channel_in& operator=(const channel_in&) = delete;

    /// One batch: consecutive items, each aligned from its own start.
    struct batch {
        const_bytes bytes;
        std::uint32_t items = 0;
        /// Not 0: no batch, but the place where every sender has marked its stream for that
        /// checkpoint, or has ended.
        std::uint64_t mark = 0;
    };
    /// Waits for the next batch and returns the last one to its sender. False at end of stream,
    /// when every sender has ended.
    virtual bool next(batch& into) = 0;
    /// The same without waiting, for a node with several inputs.
    enum class found : std::uint8_t { batch, nothing_yet, end };
    virtual found try_next(batch& into) = 0;
    /// True if try_next() would not return nothing_yet.
    virtual bool is_ready() const noexcept = 0;
    /// `shared` is rung when that becomes true. Before the run.
    void share_bell(doorbell& shared) noexcept { bell_ = &shared; }
    /// Records how long the node waits for a batch. Before the run.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }
    /// Items of consumed batches. Any thread.
    virtual std::uint64_t items_taken() const = 0;
    /// The node stops taking: returns the last batch.
    virtual void release() noexcept = 0;
    /// The run is being stopped; the rest of a batch need not be processed.
    bool is_stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

protected:
    channel_in() = default;
    ~channel_in() = default;

    void ring() noexcept {
        if (bell_ != nullptr) bell_->ring();
    }

    wait_clock* clock_ = nullptr;
    std::atomic<bool> stopped_{false};

private:
    doorbell* bell_ = nullptr;
};

/// Throws error{mismatch}: the batch does not contain what its sender declared.
[[noreturn]] void throw_bad_batch(std::string_view why);

/// Extracts items from batches, one by one.
template <typename Item>
class batch_reader {
public:
    bool is_empty() const noexcept { return left_ == 0; }
    void begin(const channel_in::batch& batch) noexcept {
        rest_ = batch.bytes;
        left_ = batch.items;
    }
    /// Calls `use(Item&&)` for up to `most` of the remaining items.
    template <typename Use>
    void read(std::uint32_t most, channel_in& from, Use&& use) {
        for (; left_ != 0 && most != 0; --left_, --most) {
            if (from.is_stopped()) return drop();
            archive_reader reader(rest_);
            reader(item_);
            if (!reader.ok()) throw_bad_batch(reader.why());
            rest_ = rest_.last(reader.remaining());
            use(std::move(item_));
            // A user's load() may leave members alone: they must not keep those of the last item.
            if constexpr (std::is_trivially_copyable_v<Item> && !bulk<Item>) {
                item_ = Item{};
            } else {
                tidy(item_);
            }
        }
        if (left_ == 0 && !rest_.empty() && !from.is_stopped())
            throw_bad_batch("it has trailing bytes after its last item");
    }

private:
    void drop() noexcept {
        rest_ = {};
        left_ = 0;
    }

    Item item_{};
    const_bytes rest_;
    std::uint32_t left_ = 0;
};

}  // namespace amalgam::detail
