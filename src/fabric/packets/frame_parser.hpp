#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/bytes.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// Receives what a frame_parser finds.
class frame_taker {
public:
    virtual delivery on_frame(const frame_header&, const_bytes payload) noexcept = 0;
    /// Destination for the rest of a frame of which `prefix` has arrived; nullptr: malformed, or
    /// the link was ended.
    virtual placement* on_part(const frame_header&, const_bytes prefix) noexcept = 0;
    virtual delivery on_part_end() noexcept = 0;

protected:
    ~frame_taker() = default;
};

/// Finds frames in bytes that arrive in pieces of any length. A frame that is whole in one piece is
/// delivered in place; the rest of a longer one goes directly to its destination.
///
/// Owner:   holds at most 80 bytes, of a frame that was cut near its beginning.
/// Threads: the port's thread.
class frame_parser {
public:
    explicit frame_parser(std::uint32_t max_frame_bytes) noexcept : max_bytes_(max_frame_bytes) {}

    /// Consumes bytes from `from` until none are left (`taken`) or a delivery stops it; advances
    /// `from` past what was consumed. After `pause` call again with the rest.
    delivery feed(const_bytes& from, frame_taker& to) noexcept;

private:
    static constexpr std::size_t header_bytes = sizeof(frame_header);
    static constexpr std::size_t least_prefix = 64;

    delivery begin(const_bytes& from, frame_taker& to) noexcept;
    delivery go_on(const_bytes& from, frame_taker& to) noexcept;
    delivery take_whole_or_part(const frame_header&, const_bytes& rest, frame_taker& to) noexcept;

    std::uint32_t max_bytes_;
    std::array<std::byte, header_bytes + least_prefix> held_;
    std::size_t held_bytes_ = 0;
    placement* into_ = nullptr;  ///< Of the unfinished frame.
    std::size_t missing_ = 0;    ///< Its bytes that have not arrived.
    segment_cursor at_;          ///< In into_->into.
};

}  // namespace amalgam::detail
