#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>

#include "fabric/broadcast/broadcast_receiver.hpp"

namespace amalgam {
namespace {

constexpr std::size_t largest_packet = 1400;  // One Ethernet frame, with room for tunnels.

struct group {
    sockaddr_in address{};
    bool multicast = false;
    in_addr interface {};  // Any: the system chooses.
};

/// A dotted IPv4 address; empty if it is not one.
std::optional<in_addr> parse_address(std::string_view text) {
    in_addr found{};
    if (::inet_pton(AF_INET, std::string(text).c_str(), &found) != 1) return std::nullopt;
    return found;
}

bool is_multicast(in_addr address) noexcept {
    return (ntohl(address.s_addr) >> 28) == 0xe;
}

/// Whether the address broadcasts to all hosts of one of this host's networks.
bool is_broadcast_of_this_host(in_addr address) {
    if (address.s_addr == INADDR_BROADCAST) return true;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return true;  // Unknown: bind() will tell.
    bool found = false;
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
        sockaddr_in own{}, mask{};
        std::memcpy(&own, each->ifa_addr, sizeof(own));
        if (each->ifa_netmask == nullptr) continue;
        std::memcpy(&mask, each->ifa_netmask, sizeof(mask));
        const auto last = own.sin_addr.s_addr | ~mask.sin_addr.s_addr;
        found = found || (last == address.s_addr && last != own.sin_addr.s_addr);
    }
    ::freeifaddrs(all);
    return found;
}

group parse_group(std::string_view text) {
    const auto refuse = [&](std::string_view why) {
        return error(errc::invalid, fmt::format("broadcast address \"{}\": {}; example: "
                                                "udp://10.0.0.255:7101 or udp://239.1.2.3:7101",
                                                text, why));
    };
    const uri parsed = uri::parse(text);
    if (parsed.scheme != "udp" || !parsed.protocol.empty())
        throw refuse("expected an address that begins with udp://");
    const std::string_view where = parsed.name;
    const std::size_t colon = where.rfind(':');
    const auto address = parse_address(where.substr(0, colon));
    if (!address) throw refuse("expected an IPv4 address");
    unsigned port = 0;
    const std::string_view digits =
        colon == std::string_view::npos ? std::string_view() : where.substr(colon + 1);
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (failed != std::errc() || end != digits.data() + digits.size() || port == 0 || port > 65535)
        throw refuse("expected a port from 1 to 65535 after the address");
    group found;
    found.address.sin_family = AF_INET;
    found.address.sin_port = htons(static_cast<std::uint16_t>(port));
    found.address.sin_addr = *address;
    found.multicast = is_multicast(*address);
    for (const uri_option& each : parsed.options) {
        const auto interface = parse_address(each.value);
        if (each.key != "interface" || !found.multicast)
            throw refuse(fmt::format(
                "unknown option \"{}\", expected interface, for a multicast group", each.key));
        if (!interface) throw refuse("expected interface to be an IPv4 address of this host");
        found.interface = *interface;
    }
    if (!found.multicast && !is_broadcast_of_this_host(*address))
        throw refuse(
            "neither a multicast group nor a broadcast address of one of this host's networks; run "
            "\"ip address\" to list them (brd)");
    return found;
}

class udp_broadcast final : public broadcast_medium {
public:
    udp_broadcast(const group& to, std::string_view text) : to_(to) {
        const auto check = [&](int result, const char* what) {
            if (result != -1) return result;
            const int why = errno;
            throw error({why == EACCES || why == EPERM ? errc::denied : errc::unreachable, why},
                        fmt::format("broadcast address \"{}\": {} failed: {}", text, what,
                                    std::strerror(why)));
        };
        socket_ = unique_fd(check(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                                  "opening a socket"));
        stop_ = unique_fd(check(::eventfd(0, EFD_CLOEXEC), "creating an eventfd"));
        const auto set = [&](int level, int option, const auto& value, const char* what) {
            check(::setsockopt(socket_.get(), level, option, &value, sizeof(value)), what);
        };
        const int yes = 1, one_hop = 1;
        set(SOL_SOCKET, SO_REUSEADDR, yes, "setting SO_REUSEADDR");
        set(SOL_SOCKET, SO_BROADCAST, yes, "broadcasting");
        // Bound to the group's address, so that packets sent to this host alone are not received.
        check(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&to_.address),
                     sizeof(to_.address)),
              "binding to it");
        if (to_.multicast) {
            const ip_mreq membership{to_.address.sin_addr, to_.interface};
            set(IPPROTO_IP, IP_ADD_MEMBERSHIP, membership, "joining the multicast group");
            set(IPPROTO_IP, IP_MULTICAST_IF, to_.interface, "setting the multicast interface");
            set(IPPROTO_IP, IP_MULTICAST_TTL, one_hop, "setting the multicast TTL");
        }
        detail::count_forks();
        const detail::blocked_signals not_ours;
        thread_ = std::thread([this] { receive(); });
    }
    ~udp_broadcast() override {
        const std::uint64_t one = 1;
        (void)!::write(stop_.get(), &one, sizeof(one));
        thread_.join();
    }

    void listen(receiver function) override {
        const std::lock_guard one(lock_);
        function_ = std::move(function);
    }

    bool send(const_bytes packet) noexcept override {
        if (packet.size() > largest_packet) return false;
        const auto sent =
            ::sendto(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL,
                     reinterpret_cast<const sockaddr*>(&to_.address), sizeof(to_.address));
        return sent == static_cast<ssize_t>(packet.size());
    }

    std::size_t max_bytes() const noexcept override { return largest_packet; }

private:
    void receive() {
        ::pthread_setname_np(::pthread_self(), "udp-broadcast");
        alignas(16) std::array<std::byte, largest_packet + 1> packet;
        pollfd waits[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        while (waits[1].revents == 0) {
            if (::poll(waits, std::size(waits), -1) == -1 && errno != EINTR) return;
            const auto bytes = ::recv(socket_.get(), packet.data(), packet.size(), 0);
            // Longer packets are not from this class.
            if (bytes < 0 || static_cast<std::size_t>(bytes) > largest_packet) continue;
            const std::lock_guard one(lock_);
            const detail::ends_children of_the_receiver;
            detail::give_packet(function_, {packet.data(), static_cast<std::size_t>(bytes)});
        }
    }

    const group to_;
    unique_fd socket_, stop_;
    std::mutex lock_;
    receiver function_;
    std::thread thread_;
};

}  // namespace

std::shared_ptr<broadcast_medium> open_broadcast(std::string_view uri) {
    return std::make_shared<udp_broadcast>(parse_group(uri), uri);
}

}  // namespace amalgam
