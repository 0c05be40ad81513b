#pragma once

#include <array>
#include <cstddef>

#include <amalgam/core/bytes.hpp>

#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

using wire_header = std::array<std::byte, sizeof(frame_header)>;

/// Encodes a frame header as its 16 bytes on the wire, little-endian.
inline wire_header to_wire(const frame_header& header) noexcept {
    wire_header wire;
    store_le(wire.data(), header.bytes);
    store_le(wire.data() + 4, header.kind);
    store_le(wire.data() + 5, header.flags);
    store_le(wire.data() + 6, header.extra);
    store_le(wire.data() + 8, header.tag);
    return wire;
}

/// Precondition: 16 bytes are readable at `wire`, at any alignment.
inline frame_header from_wire(const std::byte* wire) noexcept {
    return {load_le<std::uint32_t>(wire), load_le<frame_kind>(wire + 4),
            load_le<std::uint8_t>(wire + 5), load_le<std::uint16_t>(wire + 6),
            load_le<std::uint64_t>(wire + 8)};
}

}  // namespace amalgam::detail
