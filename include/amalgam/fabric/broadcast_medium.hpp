#pragma once

#include <cstddef>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>

namespace amalgam {

/// Broadcasts packets to every participant, possibly including the sender. Packets may be lost,
/// duplicated or reordered without notice.
///
/// Threads: any.
class broadcast_medium {
public:
    /// Takes one packet, valid during the call.
    using receiver = std::function<void(const_bytes)>;

    virtual ~broadcast_medium() = default;

    /// Calls `function` for each packet from now on, one at a time, on a thread of the medium.
    /// Packets are 16-byte aligned. It must not block. If it throws, the exception is logged and
    /// only that packet is lost. A fork() child that returns from it is terminated, as it would
    /// take its parent's packets. An empty function unsubscribes: once listen() returns, none is
    /// running. Not callable from inside `function`.
    virtual void listen(receiver function) = 0;
    /// False: the packet was not sent and will not be, because the network is down or it is longer
    /// than max_bytes().
    virtual bool send(const_bytes packet) noexcept = 0;
    virtual std::size_t max_bytes() const noexcept = 0;
};

/// Opens UDP broadcast to a network, or multicast to a group. The forms:
///
///     udp://10.0.0.255:7101                       an interface's broadcast address
///     udp://255.255.255.255:7101                  the network of the default route
///     udp://239.1.2.3:7101[?interface=10.0.0.1]   a group, on the interface with that address
///
/// Packets stay in the local network; those longer than max_bytes() (1,400) are not sent. Several
/// processes on a host may open the same one.
/// Failure: throws error{invalid} for any other address, {unreachable} if this host has no such
///          interface, {denied} if the system does not allow it.
/// Cost:    a socket and a thread, which sleeps between packets.
std::shared_ptr<broadcast_medium> open_broadcast(std::string_view uri);

}  // namespace amalgam
