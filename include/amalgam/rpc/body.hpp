#pragma once

#include <cstddef>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>

namespace amalgam {

/// The contents of a body, detached from it.
struct body_bytes {
    buffer held;         ///< The memory, with the head room.
    const_bytes values;  ///< Points into `held`.
};

/// The bytes of one message under construction: headroom for a header, then the values.
///
/// Small messages live inside the object, larger ones in a buffer that grows by doubling.
/// Owner:   owns its bytes. Does not move: bytes() stay in place until it grows.
/// Threads: one at a time.
/// Failure: growing throws error{no_memory}.
/// Cost:    no allocation up to `inline_bytes`; beyond, a buffer from `pool` (or the heap).
class body {
public:
    static constexpr std::size_t headroom = 32;       ///< Reserved in front of the values.
    static constexpr std::size_t inline_bytes = 224;  ///< For values.

    explicit body(buffer_pool* pool = nullptr) noexcept : pool_(pool) {}
    body(const body&) = delete;
    body& operator=(const body&) = delete;

    std::size_t size() const noexcept { return size_; }
    const_bytes bytes() const noexcept { return {values_, size_}; }
    void clear() noexcept { size_ = 0; }

    /// Appends `bytes` bytes, for the caller to fill in before the next call.
    std::byte* extend(std::size_t bytes) {
        if (bytes > capacity_ - size_) grow(bytes);
        std::byte* at = values_ + size_;
        size_ += bytes;
        return at;
    }

    /// Moves out the values and their memory; the body is empty afterwards.
    body_bytes take();

    /// Space for a header directly in front of the values; valid like bytes().
    /// Precondition: bytes <= headroom.
    std::byte* front(std::size_t bytes) noexcept { return values_ - bytes; }

private:
    void grow(std::size_t bytes);

    std::byte* values_ = inline_ + headroom;
    std::size_t size_ = 0;
    std::size_t capacity_ = inline_bytes;
    buffer_pool* pool_;
    buffer large_;
    alignas(16) std::byte inline_[headroom + inline_bytes];
};

}  // namespace amalgam
