#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/sockets/interfaces.hpp"
#include "fabric/sockets/socket_address.hpp"

namespace amalgam::detail {

/// What a URI asks of a port: where it listens and where it connects from.
struct binding {
    std::optional<socket_address> listen;  ///< Empty: does not listen.
    socket_address source;  ///< Of outgoing connections; empty if the routing table may choose.
    std::string device;     ///< Outgoing interface; empty: as the routing table says.
    std::string named;      ///< How `listen` was chosen: "the IPv4 address of eth0".
};

/// Resolves `where` against this machine's addresses.
/// Failure: `invalid` or `unreachable`, one sentence. Cost: may wait for DNS if a host is named.
result<binding> choose_binding(const uri& where, const machine_interfaces& machine);

/// Opens a non-blocking listening socket there.
/// Failure: `invalid`, `denied` or `unreachable`, one sentence.
result<unique_fd> open_listener(const uri& where, const socket_address& at,
                                const machine_interfaces& machine);

/// Address that a listening port announces: never a wildcard.
struct advertisement {
    socket_address address;
    std::string why;  ///< For a wildcard: why this address; else empty.
};
advertisement advertise(const socket_address& listening, const machine_interfaces& machine);

/// One sentence about the choice.
std::string explain_binding(const binding& chosen, const advertisement& shown,
                            std::string_view scheme = "tcp");

/// A connection being opened. `error` is the errno if there is none.
struct dialed {
    unique_fd socket;
    int error = 0;
};

/// Starts to connect, from the source that `from` gives. Does not wait. Failure: throws
/// std::bad_alloc.
dialed open_connection(const binding& from, const socket_address& to);

/// Sets the options of a new socket, or of a listening one, whose connections inherit them.
void prepare_socket(int fd, std::chrono::milliseconds silence_limit) noexcept;
/// Once connected: sets options for the path. Within this machine nothing is lost and no bottleneck
/// has to be found, so pacing is off, whatever the machine uses for other paths.
void suit_to_path(int fd) noexcept;

/// Drops some of what arrived and was not read: closing with unread bytes makes the kernel send a
/// reset, which can overtake what was sent.
void discard_unread(int fd) noexcept;

}  // namespace amalgam::detail
