#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/uio.h>

#include <amalgam/core/buffer.hpp>

#include "fabric/frames/frame_handler.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// The one receive buffer that all connections of a port use in turn, so an idle connection holds
/// none. A connection that stops with unparsed frames keeps it; the next reader gets another.
class receive_memory {
public:
    static constexpr std::size_t bytes = std::size_t{128} << 10;

    explicit receive_memory(buffer_pool& pool) noexcept : pool_(pool) {}
    buffer_pool& pool() noexcept { return pool_; }
    buffer take() noexcept { return spare_.capacity() != 0 ? std::move(spare_) : fresh(); }
    void give(buffer back) noexcept { spare_ = std::move(back); }

private:
    buffer fresh() noexcept { return pool_.try_take(bytes); }

    buffer_pool& pool_;
    buffer spare_;
};

/// Splits a byte stream into frames, in place where they arrive whole.
///
/// The caller reads bytes into places(), then reports their number to took(). Frames that are whole
/// in the receive buffer are delivered in place. A large incomplete frame is read directly into its
/// placement, with a little room after it so that the next frame arrives with the same call.
///
/// Owner:   between calls it holds at most the start of a small frame, unless it was stopped.
/// Threads: the port's thread.
/// Cost:    no allocation per frame; copies only the first part of a split frame.
class frame_reader {
public:
    static constexpr std::size_t max_places = 64;
    /// A frame of at least this size is not buffered until it is whole.
    static constexpr std::size_t landing_bytes = 4096;

    enum class state : std::uint8_t {
        starving,   ///< Every whole frame was delivered.
        busy,       ///< The budget is used up; call go_on().
        paused,     ///< The handler returned pause; call go_on() when it may continue.
        malformed,  ///< Not frames, or refused by the handler. Nothing more can be read.
        gone        ///< The handler returned gone.
    };

    explicit frame_reader(std::uint32_t max_frame_bytes) noexcept
        : max_frame_bytes_(max_frame_bytes) {}

    /// A large frame is being read directly to its destination.
    bool is_landing() const noexcept { return placement_ != nullptr && !placement_->discard; }

    /// Part of a frame has arrived. Precondition: the state is starving.
    bool is_within_frame() const noexcept { return placement_ != nullptr || end_ != begin_; }

    /// Where to put the next bytes of the stream: fills the front of `into` and returns the number
    /// of entries; 0: out of memory. Precondition: the state is starving.
    std::size_t places(std::span<iovec, max_places> into, receive_memory& memory) noexcept;
    /// `bytes` bytes were put there. Delivers at most `budget` frames and lowers it by their
    /// number.
    state took(std::size_t bytes, std::size_t& budget, frame_handler& to,
               receive_memory& memory) noexcept;
    /// Delivers held frames, after busy or paused.
    state go_on(std::size_t& budget, frame_handler& to, receive_memory& memory) noexcept;

private:
    enum class route : std::uint8_t { none, direct, staged };

    std::size_t direct_places(std::span<iovec, max_places> into, receive_memory& memory) noexcept;
    bool hold_receive_buffer(receive_memory& memory) noexcept;
    void settle(receive_memory& memory) noexcept;
    bool took_of_large(std::size_t bytes, frame_handler& to) noexcept;
    bool landed(std::size_t bytes, frame_handler& to) noexcept;

    std::uint32_t max_frame_bytes_;
    route route_ = route::none;  ///< How the open placement is being filled.
    buffer in_;                  ///< Unparsed bytes are [begin_, end_).
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    placement* placement_ = nullptr;
    std::size_t large_left_ = 0;  ///< Bytes of the large frame not received yet.
    std::size_t shown_left_ = 0;  ///< Of these, those for which the placement has room so far.
    bool after_long_ = false;     ///< Nothing has arrived since a long placement.
    segment_cursor cursor_;       ///< In the placement.
};

}  // namespace amalgam::detail
