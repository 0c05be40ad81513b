#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/transports/tcp/interfaces.hpp"
#include "fabric/transports/tcp/socket_address.hpp"

namespace amalgam::detail {

/// What a URI asks of a port: where it listens, and from where it connects.
struct binding {
    std::optional<socket_address> listen;  ///< none: it does not.
    socket_address source;  ///< Of connections made; none when the routing table may choose.
    std::string device;     ///< The interface they leave by; empty: as the routing table says.
    std::string named;      ///< How `listen` was arrived at: "the IPv4 address of eth0".
};

/// Reads `where` against the addresses this machine has.
/// Failure: `invalid` or `unreachable`, one sentence. Cost: may wait for DNS when a host is named.
result<binding> choose_binding(const uri& where, const std::vector<interface_address>& machine);

/// A socket that listens there and does not block.
/// Failure: `invalid`, `denied` or `unreachable`, one sentence.
result<unique_fd> open_listener(const uri& where, const socket_address& at,
                                const std::vector<interface_address>& machine);

/// Where a listening port says it is: never a wildcard.
struct advertisement {
    socket_address address;
    std::string why;  ///< For a wildcard: why this one; else empty.
};
advertisement advertise(const socket_address& listening,
                        const std::vector<interface_address>& machine);

/// One sentence about what was chosen.
std::string explain_binding(const binding& chosen, const advertisement& shown);

/// A connection under way. `error` is errno when there is none.
struct dialed {
    unique_fd socket;
    int error = 0;
};

/// Starts to connect, from where `from` says. Does not wait. Failure: throws std::bad_alloc.
dialed open_connection(const binding& from, const socket_address& to);

/// The settings of a connection, for a new socket or for a listening one that passes them on.
void prepare_socket(int fd, std::chrono::milliseconds silence_limit) noexcept;
/// Once connected: what the path asks for. Within this machine nothing is lost and no bottleneck
/// has to be found, so nothing is paced there, whatever the machine does for other paths.
void suit_to_path(int fd) noexcept;

}  // namespace amalgam::detail
