#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/flow/detail/doorbell.hpp>
#include <amalgam/flow/detail/tidy.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// The end of an edge that leads to another group, as the sending node sees it: items are
/// serialized into a batch here, by the node; whoever posts the batch sees bytes only.
///
/// Threads: one producer, a ULT. Posting may happen on another ULT at the same time, hence the
///          atomics: a batch is sent while the producer is busy, or blocked, in user code.
/// Failure: throws error{canceled} once the run is stopped.
/// Cost:    per item its bytes' copy and one atomic exchange; no allocation.
class channel_out {
public:
    channel_out(const channel_out&) = delete;
    channel_out& operator=(const channel_out&) = delete;

    // What basic_archive_writer writes into: the item under construction.
    std::byte* extend(std::size_t bytes) {
        if (bytes > static_cast<std::size_t>(end_ - at_)) make_room(bytes);
        std::byte* to = at_;
        at_ += bytes;
        return to;
    }
    /// Bytes of the item so far: it is aligned from its own start.
    std::size_t size() const noexcept { return static_cast<std::size_t>(at_ - item_); }

    /// What was written of the item under construction is forgotten.
    void drop_item() noexcept { at_ = item_; }

    /// The item is complete: from here on it may be posted.
    void commit() {
        item_ = at_;
        ++items_;
        ++sent_items_;
        // seq_cst here and where hungry_ is set: as in ring_core::finish_push().
        committed_.store(mark(static_cast<std::size_t>(at_ - begin_), items_),
                         std::memory_order_seq_cst);
        if (hungry_.load(std::memory_order_seq_cst)) post_committed();
    }

    /// Posts what is left and tells every receiver that this sender has ended.
    virtual void end() = 0;
    /// Returns when all of them have used everything up. After end().
    virtual void wait_ended() = 0;

    // For nodes that send on demand: how much the receivers have before them.

    /// Items sent and not used up yet, by each receiver on average: never fewer than there are.
    std::uint64_t items_before_receivers() const noexcept {
        return (sent_items_ - consumed_items_.load(std::memory_order_seq_cst)) / receivers_;
    }
    /// Rung when that falls. Before the run.
    void share_bell(doorbell& shared) noexcept { bell_ = &shared; }

    /// Counts how long the node waits for room. Before the run.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }
    /// What was posted so far, and how many of the items were not used up yet. Any thread.
    struct traffic {
        std::uint64_t items = 0;
        std::uint64_t bytes = 0;
        std::uint64_t waiting = 0;
        std::uint64_t most_waiting = 0;
    };
    virtual traffic traffic_so_far() const = 0;
    bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_relaxed); }

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

    /// Goes on in a larger or fresh batch, that has room for `bytes` more of this item.
    virtual void make_room(std::size_t bytes) = 0;
    /// A receiver has nothing to do: posts what there is, without waiting for a full batch.
    virtual void post_committed() = 0;

    // The producer's.
    std::byte* begin_ = nullptr;  // Of the batch.
    std::byte* item_ = nullptr;   // Of the item under construction.
    std::byte* at_ = nullptr;
    std::byte* end_ = nullptr;
    std::uint32_t items_ = 0;
    std::uint64_t sent_items_ = 0;  // Of all batches.

    wait_clock* clock_ = nullptr;
    const std::size_t receivers_;
    std::atomic<std::uint64_t> consumed_items_{0};
    std::atomic<bool> is_stopped_{false};
    alignas(64) std::atomic<std::uint64_t> committed_{0};  // Bytes and items of this batch.
    alignas(64) std::atomic<bool> hungry_{true};

private:
    doorbell* bell_ = nullptr;
};

/// The end of an edge that comes from another group, as the receiving node sees it.
///
/// Threads: one consumer, a ULT.
/// Failure: throws error{canceled} once the run is stopped.
class channel_in {
public:
    channel_in(const channel_in&) = delete;
    channel_in& operator=(const channel_in&) = delete;

    /// One batch: items one after the other, each aligned from its own start.
    struct batch {
        const_bytes bytes;
        std::uint32_t items = 0;
    };
    /// Waits for the next batch and gives the last one back to its sender. False at the end,
    /// when every sender has ended.
    virtual bool next(batch& into) = 0;
    /// The same for a node that has several ways in: never waits.
    enum class found : std::uint8_t { batch, nothing_yet, end };
    virtual found try_next(batch& into) = 0;
    /// try_next() would find more than nothing.
    virtual bool is_ready() const noexcept = 0;
    /// Rung when that has come. Before the run.
    void share_bell(doorbell& shared) noexcept { bell_ = &shared; }
    /// Counts how long the node waits for a batch. Before the run.
    void count_waits(wait_clock& clock) noexcept { clock_ = &clock; }
    /// Items of batches that were used up. Any thread.
    virtual std::uint64_t items_taken() const = 0;
    /// The node takes no more: gives the last batch back.
    virtual void release() noexcept = 0;
    /// The run is being stopped: what is left of a batch is not worth using.
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

/// Throws error{mismatch}: a batch did not hold what its sender said.
[[noreturn]] void throw_bad_batch(std::string_view why);

/// Takes the items out of batches, one by one.
template <typename Item>
class batch_reader {
public:
    bool is_empty() const noexcept { return left_ == 0; }
    void begin(const channel_in::batch& batch) noexcept {
        rest_ = batch.bytes;
        left_ = batch.items;
    }
    /// Calls `use(Item&&)` for the next `most` items, or all there are.
    template <typename Use>
    void read(std::uint32_t most, channel_in& from, Use&& use) {
        for (; left_ != 0 && most != 0; --left_, --most) {
            if (from.is_stopped()) return drop();
            archive_reader reader(rest_);
            reader(item_);
            if (!reader.ok()) throw_bad_batch(reader.why());
            rest_ = rest_.last(reader.remaining());
            use(std::move(item_));
            tidy(item_);  // A fresh one for every type but text: load() may leave members alone.
        }
        if (left_ == 0 && !rest_.empty() && !from.is_stopped())
            throw_bad_batch("it goes on after its last item");
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
