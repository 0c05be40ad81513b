#pragma once

#include <cstddef>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>

namespace amalgam {

/// What a body held, on its own.
struct body_bytes {
    buffer held;
    const_bytes values;  ///< In `held`.
};

/// The bytes of one message under construction: a header's room, then the values.
///
/// Small ones live inside the object, larger ones in a buffer that grows by doubling.
/// Owner:   owns its bytes. Does not move: bytes() stay where they are until it grows.
/// Threads: one at a time.
/// Failure: growing throws error{no_memory}.
/// Cost:    no allocation up to `inline_bytes`; past it a buffer of `pool` (or of the heap).
class body {
public:
    static constexpr std::size_t headroom = 32;       ///< Kept free in front of the values.
    static constexpr std::size_t inline_bytes = 224;  ///< Of values.

    explicit body(buffer_pool* pool = nullptr) noexcept : pool_(pool) {}
    body(const body&) = delete;
    body& operator=(const body&) = delete;

    std::size_t size() const noexcept { return size_; }
    const_bytes bytes() const noexcept { return {values_, size_}; }
    void clear() noexcept { size_ = 0; }

    /// Room for `bytes` more, to be written by the caller before the next call.
    std::byte* extend(std::size_t bytes) {
        if (bytes > capacity_ - size_) grow(bytes);
        std::byte* at = values_ + size_;
        size_ += bytes;
        return at;
    }

    /// Gives the values away, with the memory they are in; empty afterwards.
    body_bytes take();

    /// Room for a header, right in front of the values; valid like bytes().
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
