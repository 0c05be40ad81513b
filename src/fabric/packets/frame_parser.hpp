#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/bytes.hpp>

#include "fabric/frames/frame_handler.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

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
    delivery feed(const_bytes& from, frame_handler& to) noexcept;

private:
    static constexpr std::size_t header_bytes = sizeof(frame_header);
    static constexpr std::size_t least_prefix = 64;

    delivery begin(const_bytes& from, frame_handler& to) noexcept;
    delivery go_on(const_bytes& from, frame_handler& to) noexcept;
    delivery take_whole_or_part(const frame_header&, const_bytes& rest, frame_handler& to) noexcept;

    std::uint32_t max_bytes_;
    std::array<std::byte, header_bytes + least_prefix> held_;
    std::size_t held_bytes_ = 0;
    placement* into_ = nullptr;  ///< Of the unfinished frame.
    std::size_t missing_ = 0;    ///< Its bytes that have not arrived.
    segment_cursor at_;          ///< In into_->into.
};

}  // namespace amalgam::detail
