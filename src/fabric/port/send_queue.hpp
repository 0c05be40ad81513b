#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sys/uio.h>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/frames/wire_header.hpp"
#include "fabric/limits.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// Frames that a connection has accepted but the socket has not, in order.
///
/// Small frames are copied back to back, so that many leave in one system call. Large ones stay in
/// the sender's memory until sent.
///
/// Owner:   owns its copies; borrowed payloads belong to their senders.
/// Threads: the port's thread.
/// Cost:    one copy per small frame. An empty queue holds no memory except its list.
class send_queue {
public:
    explicit send_queue(buffer_pool& pool) noexcept : pool_(pool) {}

    bool empty() const noexcept { return first_ == frames_.size(); }
    /// Some frame's payload is the sender's memory.
    bool has_lent() const noexcept { return lent_ > 0; }
    std::size_t copied_bytes() const noexcept { return copied_; }
    /// Whether a refused frame is likely to be accepted now.
    bool has_room() const noexcept {
        return copied_ <= limits::max_copied_bytes / 2 && lent_ <= limits::max_borrowed_frames / 2;
    }

    /// Copies a frame, except its first `gone` bytes, which the socket already has.
    /// False: queue full or out of memory; nothing was taken.
    /// Precondition: gone is 0 unless the queue is empty.
    bool copy(const wire_header& header, gather payload, std::size_t gone = 0) noexcept;
    /// Takes a frame and borrows its payload. Otherwise as copy().
    bool lend(const wire_header& header, gather payload, completion& on_sent,
              std::size_t gone = 0) noexcept;

    /// The next bytes for the socket, from at most `frames` frames. Returns how many entries of
    /// `into` it filled.
    std::size_t fill(std::span<iovec> into, std::size_t frames = ~std::size_t{0}) const noexcept;
    /// The socket took `bytes` of them. Stops after each completely sent borrowed frame and returns
    /// it; `bytes` is then the number left to account for, so call again until it is 0.
    completion* advance(std::size_t& bytes) noexcept;

    /// Drops a borrowed frame if the socket has none of it. False: it has some, or there is no such
    /// frame.
    bool forget(const completion& on_sent) noexcept;
    /// Copies the rest of a borrowed frame. False: out of memory; the frame is then broken.
    bool detach(const completion& on_sent) noexcept;

    // ---- the first frame, when its memory cannot be read
    /// Its completion; nullptr: it is a copy of ours. Precondition: not empty().
    completion* first_lent() const noexcept { return frames_[first_].on_sent; }
    /// Whether the socket has some of it.
    bool first_begun() const noexcept { return gone_ > 0; }
    /// Whether the rest of its payload can be read.
    bool first_is_readable() const noexcept;
    /// Stops borrowing; the rest is sent as zeros. False: out of memory.
    /// Precondition: it is borrowed, and its header was sent.
    bool blank_first() noexcept;

    /// Drops everything.
    void clear() noexcept;

private:
    struct frame {
        buffer own;          ///< Copied frames, including headers; empty if borrowed.
        wire_header header;  ///< For a borrowed frame, as the next two.
        gather payload;
        completion* on_sent = nullptr;
        std::size_t bytes = 0;  ///< Including headers.
    };

    frame* push() noexcept;
    void pop() noexcept;
    frame* find(const completion& on_sent) noexcept;

    buffer_pool& pool_;
    std::vector<frame> frames_;
    std::size_t first_ = 0;  ///< Index of the first frame in frames_.
    std::size_t gone_ = 0;   ///< Bytes of the first frame that the socket has.
    segment_cursor cursor_;  ///< The same as a position in its payload.
    std::size_t copied_ = 0;
    std::size_t lent_ = 0;
};

}  // namespace amalgam::detail
