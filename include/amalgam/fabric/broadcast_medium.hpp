#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include <amalgam/core/bytes.hpp>

namespace amalgam {

/// Carries packets from each that is on it to all of them, the sender perhaps included. They may be
/// lost, come twice, or in another order; nobody is told.
///
/// Threads: any.
class broadcast_medium {
public:
    using receiver = std::function<void(const_bytes)>;

    virtual ~broadcast_medium() = default;

    /// `function` gets each packet from now on, at an address that is a multiple of 16, one at a
    /// time, on a thread of the medium; it must not wait. What it throws is logged, and costs that
    /// packet only. A child of fork() that comes back from it is ended, as it would take its
    /// parent's packets. An empty one ends that: once it returns, none is running. Not called from
    /// within it.
    virtual void listen(receiver function) = 0;
    /// False: it did not leave, and will not; the network is down, or it is longer than
    /// max_bytes().
    virtual bool send(const_bytes packet) noexcept = 0;
    virtual std::size_t max_bytes() const noexcept = 0;
};

/// UDP, to all hosts of a network or to those of a multicast group. The forms:
///
///     udp://10.0.0.255:7101                       an interface's broadcast address
///     udp://255.255.255.255:7101                  the network that the default route leaves by
///     udp://239.1.2.3:7101[?interface=10.0.0.1]   a group, at the interface with that address
///
/// Packets stay in the local network; longer ones than max_bytes() (1,400) are not sent. Several
/// processes of a host may have the same one.
/// Failure: throws error{invalid} for any other address, {unreachable} when this host has no such
///          interface, {denied} when the system does not allow it.
/// Cost:    a socket and a thread, which sleeps but for packets.
std::shared_ptr<broadcast_medium> open_broadcast(std::string_view uri);

}  // namespace amalgam
