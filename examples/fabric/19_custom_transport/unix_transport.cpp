// unix://PATH: Unix-domain sockets between processes of one host.
#include <amalgam/fabric.hpp>

#include "unix_carrier.hpp"

namespace {

using namespace amalgam;

class unix_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "unix"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "unix";
        info.usable = true;
        info.summary = "Unix-domain sockets";
        info.example = "unix:///tmp/server.sock";
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& where, const port_options& options) const override
        try {
        packet_port_traits traits;
        traits.transport = "unix";
        traits.packet_bytes = unix_carrier::packet_bytes;
        traits.listens = !where.name.empty();
        return make_packet_port(std::make_unique<unix_carrier>(where.name), traits, options);
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    }
};

}  // namespace

AMALGAM_TRANSPORT_PLUGIN([]() -> transport* { return new unix_transport; })
