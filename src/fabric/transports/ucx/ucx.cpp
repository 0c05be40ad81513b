#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/fabric/plugin.hpp>

#include "fabric/limits.hpp"
#include "fabric/packets/introduction.hpp"
#include "fabric/sealing/carrier.hpp"
#include "fabric/sockets/binding.hpp"
#include "fabric/sockets/interfaces.hpp"
#include "fabric/sockets/open_ports.hpp"
#include "fabric/sockets/socket_address.hpp"
#include "fabric/sockets/spare_descriptors.hpp"
#include "fabric/sockets/spare_memory.hpp"
#include "fabric/transports/tcp/tcp.hpp"
#include "fabric/transports/ucx/carrier.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* example = "ucx+tcp://127.0.0.1:0";
constexpr const char* sealed_example = "ucx+tcp+tls://127.0.0.1:0?credentials=FOLDER";

// What UCX takes to open a port, with the stack of its own thread.
constexpr std::size_t port_bytes = std::size_t{32} << 20;

failure wrong(const uri& where, status why, std::string_view what) {
    return wrong_uri(where, why, what, example);
}

bool has_device(const std::vector<ucx_resource>& all, std::string_view device) {
    return std::any_of(all.begin(), all.end(),
                       [&](const ucx_resource& one) { return one.device == device; });
}

std::string devices_of(const std::vector<ucx_resource>& all) {
    std::vector<std::string> names;
    for (const ucx_resource& one : all)
        if (std::find(names.begin(), names.end(), one.device) == names.end())
            names.push_back(one.device);
    return fmt::format("{}", fmt::join(names, ", "));
}

/// The interface with this address; empty if none, or if it is a wildcard.
std::string interface_of(const socket_address& at, const std::vector<interface_address>& machine) {
    for (const interface_address& one : machine)
        if (one.address.same_host(at)) return one.interface;
    return {};
}

/// Whether UCX's own sockets, one on each interface in use, are out of other hosts' reach.
bool is_loopback(const std::string& device, const std::vector<interface_address>& machine) {
    bool is_known = false;
    for (const interface_address& one : machine) {
        if (one.interface != device) continue;
        is_known = true;
        if (!one.address.is_loopback()) return false;  // Loopback devices may have others, too.
    }
    return is_known;
}

/// Puts and gets: decision 0017 says why UCX's own are not used.
void choose_transfers(ucx_carrier::setup& with, const std::string& protocol,
                      const port_options& options) {
    if (!stays_on_host(protocol) && !uses_shared_memory(protocol)) {
        with.why_packets =
            "go in packets, processed by the target's progress, as UCX carries out one-sided "
            "operations that arrive from a network without a look at keys";
        return;
    }
    auto made = host_copies::make(options.silence_limit);
    if (made)
        with.copies = std::move(made).value();
    else
        with.why_packets = fmt::format("go in packets, processed by the target's progress, as {}",
                                       made.why().sentence);
}

/// Keys do not help against that: who speaks UCX's protocol at its sockets needs none.
failure refuse_sockets(const uri& where) {
    uri meant = without_option(where, trusted_wire_option);
    meant.options.push_back({std::string(trusted_wire_option), "yes"});
    return {
        {errc::denied},
        fmt::format("uri \"{}\": other hosts can reach the sockets that UCX opens by itself, and "
                    "whoever speaks its protocol there can write to the memory of this process, "
                    "with or without keys; use tcp+tls:// or ofi+tcp+tls://, or say that the "
                    "network has only trusted hosts; example: {}",
                    to_string(where), to_string(meant))};
}

class ucx_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "ucx"; }

    transport_info describe() const override {
        unsigned major = 0, minor = 0, release = 0;
        ucp_get_version(&major, &minor, &release);
        const auto all = ucx_resources();
        transport_info info;
        info.name = "ucx";
        info.summary = fmt::format("UCX {}.{}.{}, active messages", major, minor, release);
        info.example = example;
        info.usable = !all.empty();
        if (!info.usable) info.why_not = "UCX finds no usable device on this host.";
        info.details = {"protocols: all, shm, " + transports_of(all), "devices: " + devices_of(all),
                        "rma: between processes of this host, over shm, posix, sysv and all: "
                        "cross-memory attach, if the kernel permits; else emulated by messages, "
                        "processed by the target's progress"};
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& asked, const port_options& options) const override
        try {
        uri where = asked;
        const auto trust = take_trust(where);
        if (!trust) return wrong(asked, trust.why().what, trust.why().sentence);
        // UCX fails an assertion of its own, and with it the process, if it gets some of the
        // descriptors of a context and not the rest.
        if (!has_spare_descriptors())
            return wrong(asked, {errc::no_memory, EMFILE},
                         fmt::format("UCX needs {} file descriptors, and ends the process if it "
                                     "finds too few; raise the limit (ulimit -n)",
                                     library_descriptors));
        if (!has_spare_memory(port_bytes))
            return wrong(asked, {errc::no_memory, ENOMEM},
                         fmt::format("UCX needs {} MiB of memory, and may end the process if it "
                                     "finds too little; raise the limit (ulimit -v)",
                                     port_bytes >> 20));
        const auto all = ucx_resources();
        if (where.protocol.empty())
            return wrong(asked, {errc::invalid},
                         "the protocol is missing; UCX has: all, shm, " + transports_of(all));
        if (const auto flaw = why_not_usable(where.protocol); !flaw.empty())
            return wrong(
                asked, {errc::unsupported},
                fmt::format("UCX's \"{}\" is not supported, as it {}; available: all, shm, {}",
                            where.protocol, flaw, transports_of(all)));
        if (!serves(all, where.protocol))
            return wrong(
                asked, {errc::unsupported},
                fmt::format("UCX finds no device for \"{}\" on this host; available: all, shm, {}",
                            where.protocol, transports_of(all)));
        if (!where.device.empty() && !has_device(all, where.device))
            return wrong(asked, {errc::unreachable},
                         fmt::format("UCX has no device \"{}\" here; available: {}", where.device,
                                     devices_of(all)));
        const auto insecure = means_insecure(where, options);
        if (!insecure) return retold(where, insecure.why(), example);
        const auto machine = interface_addresses();
        const char* const shown = trust->tls ? sealed_example : example;
        const uri place = introduction_uri(
            without_option(without_option(asked, insecure_option), trusted_wire_option));
        const auto bound = choose_binding(without_option(place, credentials_option), machine);
        if (!bound) return retold(asked, bound.why(), shown);
        std::string device = where.device;
        if (device.empty() && bound->listen) device = interface_of(*bound->listen, machine);
        const bool between_hosts = !stays_on_host(where.protocol);
        const bool opens_sockets = between_hosts && !is_loopback(device, machine);
        if (trust->tls) {
            if (opens_sockets && !trust->trusted_wire) return refuse_sockets(asked);
        } else if (!*insecure) {
            if (is_open_port(*bound)) return refuse_open_port(where);
            if (opens_sockets)
                return refuse_open_port(where, "the sockets that UCX opens by itself");
        }
        port_options checked = options;
        checked.insecure = *insecure;  // A name may stand for another address by now.
        auto introducer = make_tcp_transport()->open(place, checked);
        if (!introducer) return retold(asked, introducer.why(), shown);

        const bool listens = introducer.value()->can().listens;
        const bool ipv6 = where.host.find(':') != std::string::npos;
        auto worker = std::make_unique<ucx_worker>(where.protocol, device, ipv6);
        std::string chosen = fmt::format("UCX carries messages with \"{}\"", where.protocol);
        if (between_hosts)
            chosen += device.empty() ? ", over any device that reaches the peer"
                                     : fmt::format(", over the network through {} only", device);
        packet_port_traits traits;
        traits.transport = trust->tls ? "ucx+tls" : "ucx";
        traits.packet_bytes = limits::packet_bytes;
        traits.listens = listens;
        traits.between_hosts = between_hosts;
        // A killed process may leave a half-written cell in the shared-memory queue that all others
        // use.
        traits.isolates_killed = !uses_shared_memory(where.protocol);
        ucx_carrier::setup with{std::move(chosen),
                                between_hosts,
                                uses_shared_memory(where.protocol),
                                unsplit_bytes(where.protocol),
                                options.silence_limit,
                                trust->tls};
        choose_transfers(with, where.protocol, options);
        if (with.copies != nullptr) {
            // To other hosts they go in packets.
            traits.rma = between_hosts ? rma_mode::emulated : rma_mode::cross_memory;
            if (!between_hosts) traits.eager_bytes = limits::cross_memory_bytes;
        }
        struct introducer by {
            std::move(*introducer), "ucx+" + asked.protocol, {}
        };
        if (trust->tls) by.trust = {&export_tls_key, ciphers_here()};
        auto carrier =
            std::make_unique<ucx_carrier>(std::move(by), std::move(worker), std::move(with));
        return trust->tls ? make_sealed_port(std::move(carrier), traits, options)
                          : make_packet_port(std::move(carrier), traits, options);
    } catch (const error& why) {
        return wrong(asked, why.code(), why.what());
    }
};

}  // namespace
}  // namespace amalgam::detail

AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new amalgam::detail::ucx_transport; })
