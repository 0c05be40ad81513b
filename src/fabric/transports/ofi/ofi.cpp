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
#include "fabric/sockets/spare_descriptors.hpp"
#include "fabric/sockets/spare_memory.hpp"
#include "fabric/transports/ofi/connected_carrier.hpp"
#include "fabric/transports/ofi/named_carrier.hpp"
#include "fabric/transports/tcp/tcp.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* example = "ofi+tcp://127.0.0.1:0";
constexpr const char* sealed_example = "ofi+tcp+tls://127.0.0.1:0?credentials=FOLDER";

// What libfabric takes to open a port, with its threads' stacks.
constexpr std::size_t port_bytes = std::size_t{32} << 20;

failure wrong(const uri& where, status why, std::string_view what) {
    return wrong_uri(where, why, what, example);
}

/// A domain that is an interface also says where to listen, if nothing else does.
uri place_of(const uri& where, const std::vector<interface_address>& machine) {
    uri tcp = introduction_uri(where);
    std::erase_if(tcp.options, [](const uri_option& each) {  // Ours.
        return each.key != credentials_option;
    });
    if (tcp.host.empty() && tcp.port && preferred_address(machine, where.device))
        tcp.host = where.device;
    return tcp;
}

socket_address address_of(const fi_info& found) {
    if (found.src_addr == nullptr ||
        (found.addr_format != FI_SOCKADDR_IN && found.addr_format != FI_SOCKADDR_IN6))
        return {};
    return {*static_cast<const sockaddr*>(found.src_addr),
            static_cast<socklen_t>(found.src_addrlen)};
}

/// Failure: packets carry all, and `found` says why.
void prepare_copies(ofi_choice& found, const port_options& options) {
    auto made = host_copies::make(options.silence_limit);
    if (made)
        found.copies = std::move(made).value();
    else
        found.transfers.why_packets = "as " + made.why().sentence;
}

class ofi_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "ofi"; }

    transport_info describe() const override {
        const std::uint32_t version = fi_version();
        const ofi_machine here = ofi_on_this_machine();
        transport_info info;
        info.name = "ofi";
        info.summary =
            fmt::format("libfabric {}.{}, messages", FI_MAJOR(version), FI_MINOR(version));
        info.example = example;
        info.usable = !here.providers.empty();
        if (!info.usable) info.why_not = "libfabric finds no usable device on this host.";
        info.details = {fmt::format("protocols: {}", fmt::join(here.providers, ", ")),
                        fmt::format("domains: {}", fmt::join(here.domains, ", ")),
                        "rma: over verbs and cxi by the device, if libfabric's environment lets "
                        "regions close; else emulated by messages, processed by the target's "
                        "progress; ?one_sided=any, host or no chooses"};
        return info;
    }

    /// libfabric does not always say that descriptors or memory are what it lacked.
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        auto made = try_open(where, options);
        if (made || made.code() == errc::invalid) return made;
        if (!has_spare_memory(port_bytes))
            return wrong(where, {errc::no_memory, ENOMEM},
                         fmt::format("libfabric may need {} MiB of memory, and less is left; raise "
                                     "the limit (ulimit -v)",
                                     port_bytes >> 20));
        if (has_spare_descriptors()) return made;
        return wrong(where, {errc::no_memory, EMFILE},
                     fmt::format("libfabric may need {} file descriptors, and fewer are left; "
                                 "raise the limit (ulimit -n)",
                                 library_descriptors));
    }

private:
    static result<std::unique_ptr<port>> try_open(const uri& asked,
                                                  const port_options& options) try {
        uri where = asked;
        const auto trust = take_trust(where);
        if (!trust) return wrong(asked, trust.why().what, trust.why().sentence);
        if (where.protocol.empty())
            return wrong(asked, {errc::invalid},
                         fmt::format("the protocol is missing; libfabric has: {}",
                                     fmt::join(ofi_on_this_machine().providers, ", ")));
        if (const auto flaw = flaw_of(where.protocol); !flaw.empty())
            return wrong(
                asked, {errc::unsupported},
                fmt::format("libfabric's \"{}\" is not supported, as it {}", where.protocol, flaw));
        result<ofi_transfers_wish> transfers =
            transfers_wish(where, trust->tls && !trust->trusted_wire);
        if (!transfers)
            return wrong_uri(asked, transfers.why().what, transfers.why().sentence,
                             trust->tls ? sealed_example : example);
        const auto machine = interface_addresses();
        const uri tcp = place_of(asked, machine);
        const auto insecure = means_insecure(where, options);
        if (!insecure) return retold(where, insecure.why(), example);
        result<binding> bound = choose_binding(without_option(tcp, credentials_option), machine);
        if (!bound) return retold(asked, bound.why(), trust->tls ? sealed_example : example);
        if (is_open_port(*bound) && !*insecure && !trust->tls) return refuse_open_port(where);

        ofi_wish wish{where.protocol, where.device, bound->source, std::move(*transfers)};
        result<ofi_choice> found = find_ofi(wish);
        if (!found) return wrong(asked, found.why().what, found.why().sentence);
        const fi_info& info = *found->info;
        if (info.ep_attr->max_msg_size < limits::packet_bytes)
            return wrong(
                asked, {errc::unsupported},
                fmt::format(
                    "libfabric's \"{}\" carries messages of up to {} bytes, but {} are needed",
                    where.protocol, info.ep_attr->max_msg_size, limits::packet_bytes));
        port_options checked = options;
        checked.insecure = *insecure;  // A name may stand for another address by now.
        auto introducer = make_tcp_transport()->open(tcp, checked);
        if (!introducer)
            return retold(asked, introducer.why(), trust->tls ? sealed_example : example);

        if (found->transfers.on_host) prepare_copies(*found, options);
        packet_port_traits traits;
        traits.transport = trust->tls ? "ofi+tls" : "ofi";
        traits.packet_bytes = limits::packet_bytes;
        traits.listens = introducer.value()->can().listens;
        traits.between_hosts = true;
        traits.rma = found->transfers.by_device ? rma_mode::one_sided : rma_mode::emulated;
        auto carrier = make_carrier(asked, options, *bound, wish, std::move(*found),
                                    std::move(*introducer), trust->tls);
        return trust->tls ? make_sealed_port(std::move(carrier), traits, options)
                          : make_packet_port(std::move(carrier), traits, options);
    } catch (const error& why) {
        return wrong(asked, why.code(), why.what());
    }

    static std::unique_ptr<introducing_carrier> make_carrier(const uri& where,
                                                             const port_options& options,
                                                             const binding& bound,
                                                             const ofi_wish& wish, ofi_choice found,
                                                             std::unique_ptr<port> tcp, bool tls) {
        introducer by{std::move(tcp), "ofi+" + where.protocol, {}};
        if (tls) by.trust = {&export_tls_key, ciphers_here()};
        found.chosen = fmt::format("libfabric carries messages with its provider \"{}\"",
                                   found.info->fabric_attr->prov_name);
        socket_address source = wish.source;
        if (!source && !wish.domain.empty()) source = address_of(*found.info);
        if (!wish.domain.empty() || source)
            found.chosen += fmt::format(" in domain {}", found.info->domain_attr->name);
        if (!wish.connected())
            return std::make_unique<ofi_named_carrier>(std::move(by), std::move(found));
        if (source) found.chosen += " from " + source.host();
        return std::make_unique<ofi_connected_carrier>(
            std::move(by), std::move(found),
            ofi_connected_carrier::place{bound.listen.value_or(socket_address()),
                                         source ? source.with_port(0) : socket_address()},
            options.silence_limit);
    }
};

}  // namespace
}  // namespace amalgam::detail

AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new amalgam::detail::ofi_transport; })
