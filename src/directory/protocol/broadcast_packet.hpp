#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam::detail {

/// A packet broadcast by a directory server: see docs/wire/directory.md.
struct broadcast_packet {
    enum class kind : std::uint8_t {
        here,   ///< The sender is running, at these addresses.
        find,   ///< Looks for one resource: servers that have it answer.
        search  ///< Looks for all matches: every server answers, with its first match if any.
    };
    kind what = kind::here;
    std::uint64_t from = 0;  ///< The sender's key in the ring.
    std::vector<std::string> addresses{};
    /// In a query: its number, for the answers. In `here`: how many servers the sender knows.
    std::uint64_t number = 0;
    attribute_list query{};
    /// Who signed it; of no kind if nobody did. Not in its bytes.
    identity signer{};
};

std::vector<std::byte> to_bytes(const broadcast_packet& packet);
/// Empty if malformed. `bytes` must be aligned to 8.
std::optional<broadcast_packet> parse_packet(const_bytes bytes);

}  // namespace amalgam::detail
