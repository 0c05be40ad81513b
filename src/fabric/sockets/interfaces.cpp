#include "fabric/sockets/interfaces.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include <ifaddrs.h>
#include <net/if.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

/// The source address the kernel would use to reach other hosts: connecting a datagram socket
/// queries the routing table and sends nothing. The targets are documentation addresses (RFC 5737,
/// 3849).
socket_address default_route_source(int family) {
    auto target = family == AF_INET ? socket_address::numeric("198.51.100.1", 9)
                                    : socket_address::numeric("2001:db8::1", 9);
    unique_fd probe(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.get(), target->data(), target->bytes()) != 0) return {};
    return socket_address::near_end(probe.get()).with_port(0);
}

int rank(const socket_address& address) noexcept {
    if (!address) return 0;
    if (address.family() == AF_INET) return address.is_link_local() ? 2 : 4;
    return address.is_link_local() ? 1 : 3;
}

}  // namespace

std::vector<interface_address> interface_addresses(int* why) {
    std::vector<interface_address> all;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) {
        if (why != nullptr) *why = errno;
        return all;
    }
    std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
        socket_address address;
        if (at->ifa_addr != nullptr) {
            socklen_t bytes =
                at->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
            address = socket_address(*at->ifa_addr, bytes);
        }
        all.push_back({at->ifa_name, address, (at->ifa_flags & IFF_UP) != 0});
    }
    // The kernel also lists each interface once without an address; that is useful only for one
    // that has none.
    std::set<std::string> addressed;
    for (const interface_address& one : all)
        if (one.address) addressed.insert(one.interface);
    std::erase_if(all, [&](const interface_address& one) {
        return !one.address && (!one.up || addressed.count(one.interface) != 0);
    });
    return all;
}

socket_address preferred_address(const std::vector<interface_address>& all,
                                 std::string_view interface) noexcept {
    socket_address best;
    for (const interface_address& one : all)
        if (one.interface == interface && rank(one.address) > rank(best)) best = one.address;
    return best;
}

interface_address advertised_address(const std::vector<interface_address>& all, int family) {
    for (int wanted : {AF_INET, AF_INET6}) {
        if (family != AF_UNSPEC && family != wanted) continue;
        socket_address source = default_route_source(wanted);
        for (const interface_address& one : all)
            if (source && one.address.same_host(source)) return one;
    }
    interface_address best;
    int best_rank = 0;
    for (const interface_address& one : all) {
        if (!one.up || !one.address) continue;
        if (family != AF_UNSPEC && family != one.address.family()) continue;
        int its_rank = rank(one.address) + (one.address.is_loopback() ? 0 : 8);
        if (its_rank <= best_rank) continue;
        best = one;
        best_rank = its_rank;
    }
    return best;
}

bool is_own(const std::vector<interface_address>& all, const socket_address& address) noexcept {
    return address.is_loopback() ||
           std::any_of(all.begin(), all.end(), [&](const interface_address& one) {
               return one.address && one.address.same_host(address);
           });
}

std::string to_text(const std::vector<interface_address>& all) {
    std::vector<std::pair<std::string_view, std::string>> lines;
    for (const interface_address& one : all) {
        auto line = std::find_if(lines.begin(), lines.end(),
                                 [&](const auto& known) { return known.first == one.interface; });
        if (line == lines.end()) line = lines.insert(lines.end(), {one.interface, ""});
        if (!line->second.empty()) line->second += ", ";
        line->second += one.address ? one.address.host() : "no address";
    }
    std::string text;
    for (const auto& [interface, addresses] : lines) {
        if (!text.empty()) text += ", ";
        text.append(interface).append(" (").append(addresses).append(")");
    }
    return text;
}

}  // namespace amalgam::detail
