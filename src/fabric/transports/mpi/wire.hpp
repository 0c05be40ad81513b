#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/packets.hpp>

namespace amalgam::detail {

/// Messages between mpi ports. The tag of an MPI message is the number of the port it is for. A
/// port opens a connection with `contact`; the reply is `accept`. Then both send packets. Each end
/// sends `farewell` once, as its last message on the connection and no later than when it receives
/// the other's. A packet longer than max_short_bytes with its header is sent under a tag increased
/// by long_tags, after an announcement with its size. Travels on the wire: never renumber.
enum class mpi_kind : std::uint8_t {
    contact = 1,
    accept = 2,
    packet = 3,
    farewell = 4,
    announcement = 5
};

/// Precedes every packet: to:u64 kind:u8 version:u8 port:u16 0:u32, little-endian.
struct mpi_header {
    static constexpr std::size_t wire_bytes = 16;
    static constexpr std::uint8_t current_version = 1;
    /// Size limit of a message with its header; fits a call with 64 KiB. Short messages leave at
    /// once, whatever the receiver does, over every intra-host method of Open MPI.
    static constexpr std::size_t max_bytes = (68 << 10) + wire_bytes;
    static constexpr std::size_t max_short_bytes = 4000;
    static constexpr int long_tags = 65536;

    /// The receiver's id of the connection; 0 in a contact and an announcement.
    std::uint64_t to = 0;
    mpi_kind kind = mpi_kind::packet;
    std::uint8_t version = current_version;
    std::uint16_t port = 0;  ///< Number of the sender's port.

    void encode(std::byte* at) const noexcept {
        store_le(at, to);
        store_le(at + 8, std::uint64_t{static_cast<std::uint8_t>(kind)} |
                             std::uint64_t{version} << 8 | std::uint64_t{port} << 16);
    }
    static mpi_header decode(const std::byte* at) noexcept {
        return {load_le<std::uint64_t>(at), load_le<mpi_kind>(at + 8),
                load_le<std::uint8_t>(at + 9), load_le<std::uint16_t>(at + 10)};
    }
};
static_assert(mpi_header::wire_bytes <= packet::head_room);

/// A control message: a header, and the sender's id of the connection or the number of bytes it
/// announces.
struct mpi_word {
    static constexpr std::size_t wire_bytes = mpi_header::wire_bytes + 8;

    mpi_header header;
    std::uint64_t from = 0;

    void encode(std::byte* at) const noexcept {
        header.encode(at);
        store_le(at + mpi_header::wire_bytes, from);
    }
    static bool announces(const_bytes bytes) noexcept {
        return bytes.size() == wire_bytes &&
               mpi_header::decode(bytes.data()).kind == mpi_kind::announcement;
    }
    /// `from` of a complete control message.
    static std::uint64_t from_of(const_bytes word) noexcept {
        return load_le<std::uint64_t>(word.data() + mpi_header::wire_bytes);
    }
};

}  // namespace amalgam::detail
