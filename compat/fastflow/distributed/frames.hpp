#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/core/bytes.hpp>

namespace ff::detail {

/// A frame: edge (4 bytes), mark (4; 0: an item), size (8), the item's bytes; little-endian.
struct frame {
    static constexpr std::size_t header_bytes = 16;

    std::uint32_t edge = 0;
    std::uint32_t mark = 0;
    std::uint64_t size = 0;

    static frame read(const std::byte* at);
    void write(std::byte* at) const;
};

/// The frames of a batch while it is written.
///
/// Threads: one at a time.
/// Failure: add() throws std::bad_alloc, and the frame is not in the batch.
class open_batch {
public:
    void add(const frame& head, const char* bytes);
    std::size_t items() const { return items_; }
    std::size_t size() const { return size_; }
    amalgam::const_bytes bytes() const { return {bytes_.get(), size_}; }
    void clear() { items_ = size_ = 0; }

private:
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t items_ = 0;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

/// A T whose memory is used again once the transport is done with it.
template <typename T>
struct sendable : T {
    std::atomic<bool> away{false};
};
/// Whoever sends `what` holds this meanwhile.
template <typename T>
std::shared_ptr<const void> leave(const std::shared_ptr<sendable<T>>& what) {
    what->away.store(true, std::memory_order_relaxed);
    return std::shared_ptr<const void>(
        what.get(), [what](const void*) { what->away.store(false, std::memory_order_release); });
}
template <typename T>
bool is_back(const sendable<T>& what) {
    return !what.away.load(std::memory_order_acquire);
}

/// Items of one batch that came for one queue. It lives until each of them has been read, so it
/// holds nothing that another queue or mark has brought.
///
/// Threads: of() and add() one; an item is read by one, any.
class came_batch {
public:
    struct letter_go {
        void operator()(came_batch* all) const noexcept { all->let_go(1 + all->to_come_); }
    };
    using holder = std::unique_ptr<came_batch, letter_go>;

    /// Room that an item of so many bytes takes.
    static std::size_t room_of(std::size_t count) { return frame::header_bytes + count; }
    /// For so many items, which together take so much room. Failure: throws std::bad_alloc.
    static holder of(std::size_t room, std::uint32_t items);
    /// A copy of an item, as what goes through a queue. There must be room, and fewer than `items`.
    void* add(const std::byte* bytes, std::size_t count) noexcept;

    struct view {
        char* bytes;
        std::size_t size;
    };
    static view look(void* item) noexcept;
    /// The item was read, or nobody will.
    static void done(void* item) noexcept;

private:
    friend class came_memory;
    came_batch(std::byte* items, std::size_t room) : items_(items), room_(room) {}
    void begin(std::uint32_t items) noexcept;
    void let_go(std::uint32_t users) noexcept;

    std::atomic<std::uint32_t> users_{0};  // the holder, and all items from the start
    std::byte* const items_;
    const std::size_t room_;
    std::size_t used_ = 0;
    std::uint32_t to_come_ = 0;  // the holder's
};

}  // namespace ff::detail
