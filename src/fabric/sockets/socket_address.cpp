#include "fabric/sockets/socket_address.hpp"

#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <net/if.h>

namespace amalgam::detail {
namespace {

std::uint32_t zone_index(const std::string& name) noexcept {
    std::uint32_t index = 0;
    auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (failed == std::errc{} && end == name.data() + name.size()) return index;
    return ::if_nametoindex(name.c_str());
}

template <int (*End)(int, sockaddr*, socklen_t*)>
socket_address end_of(int fd) noexcept {
    sockaddr_storage raw{};
    socklen_t bytes = sizeof raw;
    auto* at = reinterpret_cast<sockaddr*>(&raw);
    return End(fd, at, &bytes) == 0 ? socket_address(*at, bytes) : socket_address();
}

int near_name(int fd, sockaddr* at, socklen_t* bytes) {
    return ::getsockname(fd, at, bytes);
}
int far_name(int fd, sockaddr* at, socklen_t* bytes) {
    return ::getpeername(fd, at, bytes);
}

}  // namespace

socket_address::socket_address() noexcept {
    std::memset(&at_, 0, sizeof at_);
    at_.any.sa_family = AF_UNSPEC;
}

socket_address::socket_address(const sockaddr& from, socklen_t bytes) noexcept : socket_address() {
    if (from.sa_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
        std::memcpy(&at_.v4, &from, sizeof at_.v4);
    } else if (from.sa_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
        std::memcpy(&at_.v6, &from, sizeof at_.v6);
        if (!IN6_IS_ADDR_V4MAPPED(&at_.v6.sin6_addr)) return;
        in_addr inner;
        std::memcpy(&inner, at_.v6.sin6_addr.s6_addr + 12, sizeof inner);
        *this = socket_address(inner).with_port(port());
    }
}

socket_address::socket_address(const in_addr& from) noexcept : socket_address() {
    at_.v4.sin_family = AF_INET;
    at_.v4.sin_addr = from;
}

socket_address::socket_address(const in6_addr& from, std::uint32_t zone) noexcept
    : socket_address() {
    at_.v6.sin6_family = AF_INET6;
    at_.v6.sin6_addr = from;
    at_.v6.sin6_scope_id = zone;
}

std::optional<socket_address> socket_address::numeric(std::string_view host, std::uint16_t port) {
    std::string text(host.substr(0, host.find('%')));
    in_addr v4;
    if (text.size() == host.size() && ::inet_pton(AF_INET, text.c_str(), &v4) == 1)
        return socket_address(v4).with_port(port);
    in6_addr v6;
    if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return std::nullopt;
    std::uint32_t zone = 0;
    if (text.size() < host.size()) {
        zone = zone_index(std::string(host.substr(text.size() + 1)));
        if (zone == 0) return std::nullopt;
    }
    socket_address plain = socket_address(v6, zone).with_port(port);
    return socket_address(*plain.data(), plain.bytes());  // Unwraps IPv4 in IPv6.
}

socket_address socket_address::near_end(int fd) noexcept {
    return end_of<near_name>(fd);
}
socket_address socket_address::far_end(int fd) noexcept {
    return end_of<far_name>(fd);
}

std::uint16_t socket_address::port() const noexcept {
    if (family() == AF_INET) return ntohs(at_.v4.sin_port);
    return family() == AF_INET6 ? ntohs(at_.v6.sin6_port) : 0;
}

std::uint32_t socket_address::zone() const noexcept {
    return family() == AF_INET6 ? at_.v6.sin6_scope_id : 0;
}

socket_address socket_address::with_port(std::uint16_t port) const noexcept {
    socket_address copy = *this;
    if (family() == AF_INET) copy.at_.v4.sin_port = htons(port);
    if (family() == AF_INET6) copy.at_.v6.sin6_port = htons(port);
    return copy;
}

bool socket_address::is_wildcard() const noexcept {
    if (family() == AF_INET) return at_.v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&at_.v6.sin6_addr);
}

bool socket_address::is_loopback() const noexcept {
    if (family() == AF_INET) return ntohl(at_.v4.sin_addr.s_addr) >> 24 == 127;
    return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&at_.v6.sin6_addr);
}

bool socket_address::is_link_local() const noexcept {
    if (family() == AF_INET) return ntohl(at_.v4.sin_addr.s_addr) >> 16 == 0xa9fe;
    return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&at_.v6.sin6_addr);
}

bool socket_address::same_host(const socket_address& other) const noexcept {
    if (family() != other.family()) return false;
    if (family() == AF_INET) return at_.v4.sin_addr.s_addr == other.at_.v4.sin_addr.s_addr;
    return family() != AF_INET6 ||
           (IN6_ARE_ADDR_EQUAL(&at_.v6.sin6_addr, &other.at_.v6.sin6_addr) &&
            zone() == other.zone());
}

std::string socket_address::host() const {
    char text[INET6_ADDRSTRLEN] = "";
    if (family() == AF_INET) ::inet_ntop(AF_INET, &at_.v4.sin_addr, text, sizeof text);
    if (family() != AF_INET6) return text;
    ::inet_ntop(AF_INET6, &at_.v6.sin6_addr, text, sizeof text);
    if (zone() == 0) return text;
    char interface[IF_NAMESIZE];
    const char* name = ::if_indextoname(zone(), interface);
    return std::string(text) + '%' + (name != nullptr ? name : std::to_string(zone()));
}

std::string socket_address::uri(std::string_view scheme) const {
    std::string bare = host();
    std::string text(scheme);
    text += "://";
    text += family() == AF_INET6 ? '[' + bare + ']' : bare;
    return text + ':' + std::to_string(port());
}

socklen_t socket_address::bytes() const noexcept {
    return family() == AF_INET6 ? sizeof at_.v6 : sizeof at_.v4;
}

}  // namespace amalgam::detail
