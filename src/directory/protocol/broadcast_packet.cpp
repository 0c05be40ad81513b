#include "directory/protocol/broadcast_packet.hpp"

#include <algorithm>
#include <string_view>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>

#include "directory/limits.hpp"
#include "directory/protocol/gate.hpp"
#include "directory/protocol/procedures.hpp"

namespace amalgam::detail {

namespace {

constexpr std::uint32_t magic = 0x62446d41;  // "AmDb"
constexpr std::uint8_t version = 1;

gate_proof proof_of(const_bytes bytes, const gate& by) {
    return by.hash("broadcast", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::vector<std::byte> to_bytes(const broadcast_packet& packet, const gate& by) {
    body into;
    archive_writer write(into);
    write(magic, version, packet.what, std::uint16_t{0}, packet.from, packet.number,
          packet.addresses, packet.query);
    std::vector<std::byte> all(into.bytes().begin(), into.bytes().end());
    if (by.is_open()) return all;
    const gate_proof proof = proof_of(all, by);
    const const_bytes end = std::as_bytes(std::span(proof));
    all.insert(all.end(), end.begin(), end.end());
    return all;
}

std::optional<broadcast_packet> parse_packet(const_bytes bytes, const gate& by) {
    if (!by.is_open()) {
        gate_proof proof;
        if (bytes.size() < proof.size()) return std::nullopt;
        const const_bytes end = bytes.last(proof.size());
        bytes = bytes.first(bytes.size() - proof.size());
        std::copy(end.begin(), end.end(), std::as_writable_bytes(std::span(proof)).begin());
        if (!same(proof, proof_of(bytes, by))) return std::nullopt;
    }
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
