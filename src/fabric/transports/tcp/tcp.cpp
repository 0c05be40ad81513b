#include "fabric/transports/tcp/tcp.hpp"

#include <algorithm>
#include <new>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/sockets/binding.hpp"
#include "fabric/transports/tcp/port.hpp"

namespace amalgam::detail {
namespace {

class tcp_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "tcp"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "tcp";
        info.summary = "sockets, IPv4 and IPv6";
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
        const auto machine = interface_addresses();
        auto chosen = choose_binding(where, machine);
        if (!chosen) return chosen.why();
        tcp_port::setup with{std::move(*chosen), {}, {}};
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

}  // namespace amalgam::detail
