#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/bytes.hpp>

namespace amalgam::detail {

/// Type of a packet. Travels on the wire, see docs/wire/packets.md: never renumber.
enum class packet_kind : std::uint8_t {
    hello = 1,   ///< First packet of each side: magic, version, incarnation.
    frames = 2,  ///< The next bytes of the frame stream.
    credit = 3   ///< Only the credit in its header.
};

/// Precedes every packet's bytes: 8 bytes, little-endian.
struct packet_header {
    static constexpr std::size_t wire_bytes = 8;

    packet_kind kind = packet_kind::frames;
    std::uint16_t credit = 0;  ///< Packets of frames that this packet's sender has consumed.

    void encode(std::byte* to) const noexcept {
        store_le(to, std::uint64_t{static_cast<std::uint8_t>(kind)} | std::uint64_t{credit} << 16);
    }
    static packet_header decode(const std::byte* from) noexcept {
        return {load_le<packet_kind>(from), load_le<std::uint16_t>(from + 2)};
    }
};

/// The bytes after the header of a hello.
struct packet_hello {
    static constexpr std::uint64_t magic = 0x316b6370'6c616d41u;  ///< "Amalpck1" on the wire.
    static constexpr std::uint32_t current_version = 2;
    static constexpr std::size_t wire_bytes = 24;

    std::uint32_t version = current_version;
    std::uint32_t packet_bytes = 0;
    std::uint64_t incarnation = 0;

    void encode(std::byte* to) const noexcept {
        store_le(to, magic);
        store_le(to + 8, version);
        store_le(to + 12, packet_bytes);
        store_le(to + 16, incarnation);
    }
    /// False: not a hello.
    bool decode(const_bytes from) noexcept {
        if (from.size() != wire_bytes || load_le<std::uint64_t>(from.data()) != magic) return false;
        version = load_le<std::uint32_t>(from.data() + 8);
        packet_bytes = load_le<std::uint32_t>(from.data() + 12);
        incarnation = load_le<std::uint64_t>(from.data() + 16);
        return true;
    }
};

}  // namespace amalgam::detail
