#include "fabric/sockets/binding.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/sockets/resolver.hpp"
#include "fabric/sockets/silence.hpp"

namespace amalgam::detail {
namespace {

constexpr int backlog = 4096;  // The kernel lowers it to its own limit.

failure wrong(const uri& where, errc code, int native, std::string_view what) {
    return {{code, native},
            fmt::format("uri \"{}\": {}; example: tcp://127.0.0.1:7000", to_string(where), what)};
}

const char* family_name(const socket_address& address) {
    return address.family() == AF_INET6 ? "IPv6" : "IPv4";
}

binding at_address(const socket_address& address, std::string named) {
    binding chosen;
    chosen.listen = address;
    chosen.named = std::move(named);
    if (!address.is_wildcard()) chosen.source = address.with_port(0);
    return chosen;
}

binding at_every_address(std::uint16_t port) {
    // One IPv6 socket serves both families; without IPv6 on this machine, use IPv4.
    unique_fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto any = socket_address::numeric(probe ? "::" : "0.0.0.0", port);
    return at_address(*any, "all addresses");
}

/// This process, or this machine, has no room for it.
bool is_lack(int why) noexcept {
    return why == EMFILE || why == ENFILE || why == ENOMEM || why == ENOBUFS;
}

failure lacks(const uri& where, int why, std::string_view what) {
    return wrong(where, errc::no_memory, why,
                 fmt::format("{}: {}{}", what, std::strerror(why),
                             why == EMFILE   ? "; raise the limit on open files (ulimit -n)"
                             : why == ENFILE ? "; raise the limit on open files (fs.file-max)"
                                             : ""));
}

bool is_interface(const std::vector<interface_address>& machine, const std::string& name) {
    for (const interface_address& one : machine)
        if (one.interface == name) return true;
    return false;
}

}  // namespace

result<binding> choose_binding(const uri& where, const machine_interfaces& machine) {
    if (!where.options.empty())
        return wrong(where, errc::invalid, 0,
                     fmt::format("unknown option \"{}\": tcp has none", where.options.front().key));
    const std::uint16_t port = where.port.value_or(0);
    if (where.host.empty()) return where.port ? at_every_address(port) : binding{};
    if (auto address = socket_address::numeric(where.host, port)) {
        if (address->family() == AF_INET6 && address->is_link_local() && address->zone() == 0)
            return wrong(where, errc::invalid, 0,
                         fmt::format("the link-local address {0} needs an interface, as in "
                                     "[{0}%eth0]; this host has: {1}",
                                     address->host(), to_text(machine.all())));
        return at_address(*address, address->is_wildcard()
                                        ? fmt::format("all {} addresses", family_name(*address))
                                        : "the requested address");
    }
    if (is_lack(machine.why_unknown()))
        return lacks(where, machine.why_unknown(),
                     fmt::format("cannot tell whether {} is an interface of this host, as the "
                                 "kernel cannot be asked for those",
                                 where.host));
    if (is_interface(machine.all(), where.host)) {
        socket_address address = preferred_address(machine.all(), where.host);
        if (!address)
            return wrong(where, errc::unreachable, 0,
                         fmt::format("the interface {} has no address; this host has: {}",
                                     where.host, to_text(machine.all())));
        binding chosen =
            at_address(address.with_port(port),
                       fmt::format("the {} address of {}", family_name(address), where.host));
        chosen.device = where.host;
        return chosen;
    }
    auto found = resolve(where.host, port);
    if (!found)
        return wrong(
            where, errc::unreachable, found.code().native,
            machine.why_unknown() != 0
                ? fmt::format("{}, and the kernel cannot be asked for an interface of this name: "
                              "{}",
                              found.sentence(), std::strerror(machine.why_unknown()))
                : fmt::format("{}, and no interface has this name; this host has: {}",
                              found.sentence(), to_text(machine.all())));
    std::size_t own = 0;
    while (own < found->size() && !is_own(machine.all(), (*found)[own]))
        ++own;
    return at_address((*found)[own < found->size() ? own : 0],
                      fmt::format("an address of {}", where.host));
}

result<unique_fd> open_listener(const uri& where, const socket_address& at,
                                const machine_interfaces& machine) {
    unique_fd socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int on = 1;
    int off = 0;
    if (socket) {
        // Lets a restarted program reuse its port while old connections linger.
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (at.family() == AF_INET6)
            ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (::bind(socket.get(), at.data(), at.bytes()) == 0 &&
            ::listen(socket.get(), backlog) == 0)
            return socket;
    }
    const int why = errno;
    if (is_lack(why)) return lacks(where, why, fmt::format("cannot listen at {}", at.host()));
    switch (why) {
        case EADDRINUSE:
            return wrong(
                where, errc::in_use, why,
                fmt::format("port {} at {} is in use; choose another, or 0 for any free port",
                            at.port(), at.host()));
        case EADDRNOTAVAIL:
            return wrong(where, errc::invalid, why,
                         fmt::format("{} is not an address of this host; this host has: {}",
                                     at.host(), to_text(machine.all())));
        case EACCES:
            return wrong(
                where, errc::denied, why,
                fmt::format("no permission to listen on port {}; choose a port of at least 1024",
                            at.port()));
        case EAFNOSUPPORT:
            return wrong(where, errc::unsupported, why,
                         fmt::format("this host does not support {}", family_name(at)));
        default:
            return wrong(where, errc::unreachable, why,
                         fmt::format("cannot listen at {}: {}", at.host(), std::strerror(why)));
    }
}

advertisement advertise(const socket_address& listening, const machine_interfaces& machine) {
    if (!listening.is_wildcard()) return {listening, ""};
    const int family = listening.family() == AF_INET6 ? AF_UNSPEC : AF_INET;
    interface_address best = advertised_address(machine.all(), family);
    if (!best.address) best = {"lo", *socket_address::numeric("127.0.0.1", 0), true};
    return {
        best.address.with_port(listening.port()),
        best.address.is_loopback()
            ? "the loopback address, as no other interface is up"
            : fmt::format("the address of {}, the interface of the default route", best.interface)};
}

std::string explain_binding(const binding& chosen, const advertisement& shown,
                            std::string_view scheme) {
    if (!chosen.listen)
        return "does not listen, as the URI names no host; outgoing connections follow the routing "
               "table";
    std::string text =
        chosen.listen->is_wildcard()
            ? fmt::format("listens on {}, port {}, and advertises {}, {}", chosen.named,
                          shown.address.port(), shown.address.uri(scheme), shown.why)
            : fmt::format("listens on {}, {}", shown.address.uri(scheme), chosen.named);
    if (!chosen.source) return text + "; outgoing connections follow the routing table";
    text += fmt::format("; outgoing connections use {}", chosen.source.host());
    return chosen.device.empty() ? text : text + " on " + chosen.device;
}

dialed open_connection(const binding& from, const socket_address& to) {
    dialed made{unique_fd(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), 0};
    const int fd = made.socket.get();
    const auto failed = [&] { return dialed{unique_fd(), errno}; };
    if (fd < 0) return failed();
    if (from.source) {
        int on = 1;  // Local port chosen at connect(): avoids port exhaustion.
        ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (::bind(fd, from.source.data(), from.source.bytes()) != 0) return failed();
    }
    // Without permission to bind to a device, the source address must do. Traffic to this machine
    // leaves by no device, and a socket bound to one would not receive the reply.
    if (!from.device.empty() && !is_own(interface_addresses(), to))
        ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, from.device.c_str(),
                     static_cast<socklen_t>(from.device.size()));
    if (::connect(fd, to.data(), to.bytes()) != 0 && errno != EINPROGRESS) return failed();
    return made;
}

void prepare_socket(int fd, std::chrono::milliseconds silence_limit) noexcept {
    int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch_silence(fd, silence_limit);
}

void discard_unread(int fd) noexcept {
    constexpr int tries = 8;
    constexpr std::size_t some = std::size_t{1} << 20;
    // Not recv() itself, which ThreadSanitizer takes for a write to address 0.
    for (int i = 0; i < tries; ++i)
        if (::syscall(SYS_recvfrom, fd, nullptr, some, MSG_TRUNC | MSG_DONTWAIT, nullptr,
                      nullptr) <= 0)
            return;
}

void suit_to_path(int fd) noexcept {
    const socket_address near = socket_address::near_end(fd);
    const socket_address far = socket_address::far_end(fd);
    if (!near.same_host(far) && !(near.is_loopback() && far.is_loopback())) return;
    // The only algorithm that every kernel has and lets everybody choose.
    constexpr char unpaced[] = "reno";
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced, sizeof unpaced - 1);
}

}  // namespace amalgam::detail
