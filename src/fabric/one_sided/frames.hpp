#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

// Frames by which a port learns the library's keys of a peer's region: docs/wire/packets.md.
inline constexpr frame_kind key_question_kind{16};
inline constexpr frame_kind key_answer_kind{17};
inline constexpr frame_kind key_gone_kind{18};
/// Longest of them.
inline constexpr std::size_t max_key_frame_bytes = 256;

/// The start of a question; the asker's name follows.
inline constexpr std::size_t key_question_bytes = remote_key::wire_bytes;

/// The start of an answer; what the carrier tells of this segment follows.
struct key_answer {
    static constexpr std::size_t wire_bytes = 16;

    std::uint16_t index = 0;
    std::uint16_t count = 0;  ///< Segments of the region; 0: packets must carry its transfers.
    std::uint64_t bytes = 0;  ///< Of this segment.

    void encode(std::byte* to) const noexcept {
        store_le(to, index);
        store_le(to + 2, count);
        store_le(to + 4, std::uint32_t{0});
        store_le(to + 8, bytes);
    }
    static key_answer decode(const std::byte* from) noexcept {
        return {load_le<std::uint16_t>(from), load_le<std::uint16_t>(from + 2),
                load_le<std::uint64_t>(from + 8)};
    }
};

}  // namespace amalgam::detail
