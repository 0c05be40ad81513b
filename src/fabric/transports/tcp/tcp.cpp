#include "fabric/transports/tcp/tcp.hpp"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/credentials.hpp>

#include "fabric/sockets/binding.hpp"
#include "fabric/sockets/open_ports.hpp"
#include "fabric/transports/tcp/port.hpp"

namespace amalgam::detail {
namespace {

constexpr std::string_view credentials_option = "credentials";

failure wrong_trust(const uri& where, status why, std::string_view what) {
    return {why, fmt::format("uri \"{}\": {}; example: tcp+tls://127.0.0.1:7000?credentials=FOLDER",
                             to_string(where), what)};
}

/// What the port proves itself with: null without TLS.
result<std::shared_ptr<const credentials>> trust_of(const uri& where, const port_options& options) {
    const auto folder = where.option(credentials_option);
    if (where.protocol.empty()) {
        if (folder)
            return wrong_trust(where, {errc::invalid},
                               "tcp:// does not encrypt and has no use for credentials, expected "
                               "tcp+tls://");
        return std::shared_ptr<const credentials>();
    }
    if (where.option(insecure_option))
        return wrong_trust(where, {errc::invalid},
                           "tcp+tls:// lets in nobody without keys and has no use for insecure, "
                           "expected tcp://, or no such option");
    if (folder) {
        auto read = credentials::try_from_folder(std::string(*folder));
        if (!read) return wrong_trust(where, read.why().what, read.sentence());
        return read;
    }
    if (options.trust == nullptr)
        return wrong_trust(where, {errc::invalid},
                           "tcp+tls:// needs credentials, expected the option credentials with a "
                           "folder that `amalgam key` has made, or port_options::trust");
    return options.trust;
}

class tcp_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "tcp"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "tcp";
        info.summary = "sockets, IPv4 and IPv6; tcp+tls:// encrypted";
        info.example = "tcp://127.0.0.1:0";
        info.usable =
            static_cast<bool>(unique_fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
        if (!info.usable) info.why_not = "this process may not open IPv4 sockets.";
        info.details = {"interfaces: " + to_text(interface_addresses()),
                        "rma: emulated by messages, processed by the target's progress"};
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        const machine_interfaces machine;
        auto trust = trust_of(where, options);
        if (!trust) return trust.why();
        const auto insecure = means_insecure(where, options);
        if (!insecure) return insecure.why();
        auto chosen = choose_binding(
            without_option(without_option(where, credentials_option), insecure_option), machine);
        if (!chosen) return chosen.why();
        if (is_open_port(*chosen) && *trust == nullptr && !*insecure)
            return refuse_open_port(where);
        tcp_port::setup with{std::move(*chosen),
                             {},
                             {},
                             std::move(*trust),
                             std::string(where.option(credentials_option).value_or(""))};
        if (with.chosen.listen) {
            auto listener = open_listener(where, *with.chosen.listen, machine);
            if (!listener) return listener.why();
            with.listener = std::move(*listener);
            prepare_socket(with.listener.get(), options.silence_limit);
            with.shown = advertise(socket_address::near_end(with.listener.get()), machine);
        }
        try {
            return std::unique_ptr<port>(std::make_unique<tcp_port>(options, std::move(with)));
        } catch (const error& why) {
            return failure{why.code(), why.what()};
        }
    }
};

}  // namespace

std::unique_ptr<transport> make_tcp_transport() {
    return std::make_unique<tcp_transport>();
}

bool export_tls_key(port& tcp, peer_id peer, std::string_view label, const_bytes context,
                    mutable_bytes into) {
    return static_cast<tcp_port&>(tcp).export_key(peer, label, context, into);
}

}  // namespace amalgam::detail
