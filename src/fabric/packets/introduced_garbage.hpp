#pragma once

#include <string>
#include <vector>

#include <amalgam/core/random.hpp>

#include "fabric/transports/tcp/raw_peer.hpp"

namespace amalgam::detail {

/// For tests: sends an invalid introduction to an introduced_carrier at `address` and returns once
/// that end has disconnected. Does not cover wrong names in valid greetings, which libraries treat
/// in their own ways.
inline void send_wrong_introduction(const std::string& address, std::uint64_t seed) {
    seeded_random dice(seed);
    tcp_raw_peer at("tcp" + address.substr(address.find("://")));
    const auto noise = [&](std::size_t bytes) {
        std::vector<std::byte> made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice());
        return made;
    };
    switch (dice.below(4)) {
        case 0:
            at.send(noise(16 + dice.below(2000)));
            break;
        case 1: {  // No introduction, but a message with an unknown tag.
            at.shake_hands();
            at.send_frame({.kind = frame_kind::unexpected, .tag = dice()}, noise(100));
            ::shutdown(at.fd(), SHUT_WR);
            break;
        }
        case 2: {  // An introduction that is too short, or ends within its scheme.
            at.shake_hands();
            at.send_frame({.kind = frame_kind::unexpected, .tag = 0x316f7274'6c616d41u},
                          noise(dice.below(12)));
            break;
        }
        default: {  // An introduction from another kind of port.
            at.shake_hands();
            std::vector<std::byte> introduction = noise(8);
            for (char c : std::string("\4\0loop", 6))
                introduction.push_back(static_cast<std::byte>(c));
            at.send_frame({.kind = frame_kind::unexpected, .tag = 0x316f7274'6c616d41u},
                          introduction);
            break;
        }
    }
    at.wait_for_the_end();
}

}  // namespace amalgam::detail
