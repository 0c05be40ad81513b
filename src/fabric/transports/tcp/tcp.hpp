#pragma once

#include <memory>
#include <string_view>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// Sockets: tcp://[HOST|IP|INTERFACE][:[PORT]], IPv4 and IPv6, between processes and hosts.
std::unique_ptr<transport> make_tcp_transport();

/// Key material of the TLS connection to `peer` (RFC 8446, 7.5): both ends get the same, nobody
/// else does, and each label and context gives another. False: the connection is not up, or without
/// TLS.
/// Precondition: `tcp` is a port of make_tcp_transport().
bool export_tls_key(port& tcp, peer_id peer, std::string_view label, const_bytes context,
                    mutable_bytes into);

}  // namespace amalgam::detail
