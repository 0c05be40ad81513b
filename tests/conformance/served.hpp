#pragma once

#include <string>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {

/// What a serving process tells of itself.
struct served {
    std::string address;
    remote_key key;          ///< Opens its memory, all zero at first, for reading and writing.
    remote_key block_key{};  ///< Likewise, as much memory from allocate().

    std::string to_text() const;
    static served from_text(const std::string& text);
};

/// How much memory it serves: more than what the kernel holds between two processes.
inline constexpr std::size_t served_bytes = std::size_t{slow_build ? 12u : 32u} << 20;

/// The body of a child that opens a port, tells its parent, and sends every message of up to
/// 4 KiB back to where it came from, until its parent says something or is gone.
void serve(transport_suite& suite, channel& parent, const std::string& where);

/// Expects that what is sent to `peer`, which serves, comes back.
void expect_echo(transport_suite& suite, node& at, peer_id peer);

}  // namespace amalgam::conformance
