#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>

#include <amalgam/core/uri.hpp>

namespace amalgam::detail {

/// An IPv4 or IPv6 address and port in the form that socket calls use; may be empty.
///
/// IPv4 in IPv6 (::ffff:a.b.c.d) is stored as IPv4, so that one host has one spelling.
/// Threads: a plain value.
class socket_address {
public:
    socket_address() noexcept;  ///< Empty: family() is AF_UNSPEC.
    socket_address(const sockaddr& from, socklen_t bytes) noexcept;
    explicit socket_address(const in_addr& from) noexcept;  ///< Port 0.
    explicit socket_address(const in6_addr& from, std::uint32_t zone = 0) noexcept;

    /// Parses "10.0.0.5", "::1" or "fe80::1%eth0" (zone by name or number). Empty: not an address,
    /// or no such zone on this machine.
    static std::optional<socket_address> numeric(std::string_view host, std::uint16_t port);
    /// Near and far end of a connected socket; empty if it has no such end.
    static socket_address near_end(int fd) noexcept;
    static socket_address far_end(int fd) noexcept;

    int family() const noexcept { return at_.any.sa_family; }
    explicit operator bool() const noexcept { return family() != AF_UNSPEC; }
    std::uint16_t port() const noexcept;
    std::uint32_t zone() const noexcept;  ///< Interface index of a link-local address, or 0.
    socket_address with_port(std::uint16_t port) const noexcept;

    bool is_wildcard() const noexcept;
    bool is_loopback() const noexcept;
    bool is_link_local() const noexcept;
    bool same_host(const socket_address& other) const noexcept;
    friend bool operator==(const socket_address& a, const socket_address& b) noexcept {
        return a.same_host(b) && a.port() == b.port();
    }

    std::string host() const;  ///< "10.0.0.5", "fe80::1%eth0"; empty without an address.
    /// "tcp://10.0.0.5:7000", "tcp://[::1]:7000".
    std::string uri(std::string_view scheme = "tcp") const;

    const sockaddr* data() const noexcept { return &at_.any; }
    socklen_t bytes() const noexcept;

private:
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    } at_;
};

}  // namespace amalgam::detail
