#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// Sockets: tcp://[HOST|IP|INTERFACE][:[PORT]], IPv4 and IPv6, between processes and hosts.
std::unique_ptr<transport> make_tcp_transport();

}  // namespace amalgam::detail
