#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/directory/attributes.hpp>

namespace amalgam::detail {

class gate;

/// What a directory server broadcasts: see docs/wire/directory.md.
struct broadcast_packet {
    enum class kind : std::uint8_t {
        here,   ///< It is there, at these addresses.
        find,   ///< It looks for a resource: who has one answers.
        search  ///< It looks for all: everybody answers, who has one with the first.
    };
    kind what = kind::here;
    std::uint64_t from = 0;  ///< Its key in the ring.
    std::vector<std::string> addresses{};
    /// Of a question, for those who answer; of a server that is there, how many it knows.
    std::uint64_t number = 0;
    attribute_list query{};
};

/// With the proof that who sent it knows the secret, if there is one.
std::vector<std::byte> to_bytes(const broadcast_packet& packet, const gate& by);
/// Nothing: it is not one, or without that proof. `bytes` are at a multiple of 8.
std::optional<broadcast_packet> parse_packet(const_bytes bytes, const gate& by);

}  // namespace amalgam::detail
