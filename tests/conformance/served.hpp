#pragma once

#include <string>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {

/// What a serving process publishes.
struct served {
    std::string address;
    remote_key key;          ///< Key of its memory, initially zero, readable and writable.
    remote_key block_key{};  ///< Likewise, for as much memory from allocate().

    std::string to_text() const;
    static served from_text(const std::string& text);
};

/// Size of its memory: more than the kernel buffers between two processes.
inline constexpr std::size_t served_bytes = std::size_t{12} << 20;

/// Body of a child that opens a port, reports to its parent, and echoes every message of up to 4
/// KiB, until its parent sends something or is gone.
void serve(transport_suite& suite, channel& parent, const std::string& where);

/// Expects that `peer`, which serves, echoes a message.
void expect_echo(transport_suite& suite, node& at, peer_id peer);

/// Connects to who serves at an address, again where a busy machine was too slow for a handshake
/// within the silence limit, and expects an echo.
peer_id reach(transport_suite& suite, node& at, const std::string& address);

}  // namespace amalgam::conformance
