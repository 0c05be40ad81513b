#include "directory/protocol/broadcast_packet.hpp"

#include <algorithm>
#include <string_view>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>

#include "directory/limits.hpp"
#include "directory/protocol/procedures.hpp"

namespace amalgam::detail {

namespace {

constexpr std::uint32_t magic = 0x62446d41;  // "AmDb"
constexpr std::uint8_t version = 1;

}  // namespace

std::vector<std::byte> to_bytes(const broadcast_packet& packet) {
    body into;
    archive_writer write(into);
    write(magic, version, packet.what, std::uint16_t{0}, packet.from, packet.number,
          packet.addresses, packet.query);
    return {into.bytes().begin(), into.bytes().end()};
}

std::optional<broadcast_packet> parse_packet(const_bytes bytes) {
    archive_reader read(bytes);
    std::uint32_t says_magic = 0;
    std::uint8_t says_version = 0;
    std::uint16_t reserved = 0;
    broadcast_packet packet;
    read(says_magic, says_version);
    if (says_magic != magic || says_version != version) return std::nullopt;
    read(packet.what, reserved, packet.from, packet.number, packet.addresses, packet.query);
    if (!read.ok() || read.remaining() != 0 || packet.what > broadcast_packet::kind::search ||
        packet.addresses.size() > limits::max_packet_addresses)
        return std::nullopt;
    return packet;
}

}  // namespace amalgam::detail
