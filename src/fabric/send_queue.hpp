#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sys/uio.h>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/segments.hpp"
#include "fabric/wire_header.hpp"

namespace amalgam::detail {

/// Frames that a connection has taken but the socket has not, in order.
///
/// Small ones are copied, one behind the other, so that many leave by one call; large ones stay
/// with their sender until they left.
///
/// Owner:   copies are its own; lent payloads belong to whoever sent them.
/// Threads: the port's.
/// Cost:    an empty queue holds no memory but its list; a copy per small frame.
class send_queue {
public:
    static constexpr std::size_t max_copied_bytes = std::size_t{128} << 10;
    static constexpr std::size_t max_lent = 256;
    static constexpr std::size_t max_copy_bytes = 8192;  ///< Longest payload that copy() takes.

    explicit send_queue(buffer_pool& pool) noexcept : pool_(pool) {}

    bool empty() const noexcept { return first_ == frames_.size(); }
    std::size_t copied_bytes() const noexcept { return copied_; }
    /// Whether one that was refused is likely to be taken now.
    bool has_room() const noexcept {
        return copied_ <= max_copied_bytes / 2 && lent_ <= max_lent / 2;
    }

    /// Takes a copy of a frame, but for its first `gone` bytes, which the socket has already.
    /// False: too much waits, or no memory; nothing was taken.
    /// Precondition: gone is 0 unless the queue is empty.
    bool copy(const wire_header& header, gather payload, std::size_t gone = 0) noexcept;
    /// Takes a frame whose payload stays where it is. Otherwise as copy().
    bool lend(const wire_header& header, gather payload, completion& on_sent,
              std::size_t gone = 0) noexcept;

    /// The next bytes for the socket, of `frames` frames at most; returns how many entries of
    /// `into` it filled.
    std::size_t fill(std::span<iovec> into, std::size_t frames = ~std::size_t{0}) const noexcept;
    /// The socket took `bytes` of them. Stops behind each lent frame that is through, and returns
    /// it; `bytes` then says how many are left to account for, so call again until it is 0.
    completion* advance(std::size_t& bytes) noexcept;

    /// Drops a lent frame of which the socket has nothing yet. False: it has, or there is none.
    bool forget(const completion& on_sent) noexcept;
    /// Copies what is left of a lent frame. False: no memory; then the frame is broken.
    bool detach(const completion& on_sent) noexcept;

    // ---- the first frame, when memory that is to leave cannot be read
    /// Whose it is; nullptr: a copy of ours. Precondition: not empty().
    completion* first_lent() const noexcept { return frames_[first_].on_sent; }
    /// The socket has some of it.
    bool first_begun() const noexcept { return gone_ > 0; }
    /// Whether the rest of its payload can be read.
    bool first_is_readable() const noexcept;
    /// It is lent no more: what is left of it leaves as zeros. False: no memory.
    /// Precondition: it is lent, and its header has left.
    bool blank_first() noexcept;

    /// Drops everything.
    void clear() noexcept;

private:
    struct frame {
        buffer own;          ///< Copied frames, headers and all; empty when lent.
        wire_header header;  ///< Of a lent frame, like the rest.
        gather payload;
        completion* on_sent = nullptr;
        std::size_t bytes = 0;  ///< With the header.
    };

    frame* push() noexcept;
    void pop() noexcept;
    frame* find(const completion& on_sent) noexcept;

    buffer_pool& pool_;
    std::vector<frame> frames_;
    std::size_t first_ = 0;  ///< Where the queue begins in frames_.
    std::size_t gone_ = 0;   ///< Bytes of the first frame that the socket has.
    segment_cursor cursor_;  ///< The same as a place in its payload.
    std::size_t copied_ = 0;
    std::size_t lent_ = 0;
};

}  // namespace amalgam::detail
