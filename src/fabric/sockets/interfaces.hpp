#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/sockets/socket_address.hpp"

namespace amalgam::detail {

/// One address of one network interface of this machine.
struct interface_address {
    std::string interface;
    socket_address address;  ///< Port 0.
    bool up = false;
};

/// All IPv4 and IPv6 addresses of this machine, in the kernel's order. Includes interfaces that are
/// up but have no address. Empty, with errno in `why`, if the kernel cannot be asked.
std::vector<interface_address> interface_addresses(int* why = nullptr);

/// The same, looked up once somebody asks: that takes two conversations with the kernel, and most
/// ports have a numeric address or none.
///
/// Threads: one at a time.
class machine_interfaces {
public:
    machine_interfaces() = default;
    machine_interfaces(std::vector<interface_address> known) : all_(std::move(known)) {}

    const std::vector<interface_address>& all() const {
        if (!all_) all_ = interface_addresses(&why_unknown_);
        return *all_;
    }
    /// errno of why the kernel could not be asked; 0: it has answered.
    int why_unknown() const {
        all();
        return why_unknown_;
    }
    bool were_asked_for() const noexcept { return all_.has_value(); }

private:
    mutable std::optional<std::vector<interface_address>> all_;
    mutable int why_unknown_ = 0;
};

/// The address to use if a user names an interface: IPv4 first, then routable IPv6, then
/// link-local; empty if no interface of that name has an address.
socket_address preferred_address(const std::vector<interface_address>& all,
                                 std::string_view interface) noexcept;

/// The address to announce to peers when listening on every address: that of the default route,
/// else the first of an interface that is up and not loopback, else loopback. `family`: AF_INET,
/// AF_INET6, or AF_UNSPEC for either, IPv4 first.
interface_address advertised_address(const std::vector<interface_address>& all, int family);

/// Whether `address` belongs to this machine.
bool is_own(const std::vector<interface_address>& all, const socket_address& address) noexcept;

/// "lo (127.0.0.1, ::1), eth0 (10.0.0.5)": for error sentences.
std::string to_text(const std::vector<interface_address>& all);

}  // namespace amalgam::detail
