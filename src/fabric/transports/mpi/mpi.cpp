#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/fabric/plugin.hpp>

#include "fabric/packets/meeting.hpp"
#include "fabric/transports/mpi/carrier.hpp"
#include "fabric/transports/mpi/library.hpp"

namespace amalgam::detail {
namespace {

failure wrong(const uri& where, status why, std::string_view what) {
    return wrong_uri(where, why, what, "mpi+static");
}

class mpi_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "mpi"; }

    transport_info describe() const override {
        transport_info info;
        info.name = "mpi";
        info.summary = mpi_library::version() + ", between the ranks of one mpirun";
        info.example = "mpi+static";
        info.usable = true;
        info.details = {"rma: by messages that the target's progress carries out",
                        "mpi+dynamic: not supported, Open MPI cannot call off waiting for a peer"};
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& where, const port_options& options) const override
        try {
        if (where.protocol != "static")
            return wrong(
                where, {errc::unsupported},
                "processes that were started apart are not served, as Open MPI cannot call "
                "off waiting for one that died (docs/design/mpi.md); expected mpi+static under "
                "mpirun, or tcp or ucx");
        if (!where.options.empty())
            return wrong(where, {errc::invalid},
                         fmt::format("the option \"{}\" is not known, expected none",
                                     where.options.front().key));
        mpi_library& mpi = mpi_library::start();
        if (!where.host.empty() && where.host != std::to_string(mpi.rank()))
            return wrong(where, {errc::invalid},
                         fmt::format("rank {} is another process, expected no rank or {}, which "
                                     "this one is",
                                     where.host, mpi.rank()));
        const std::optional<std::uint16_t> number = mpi.take_number(where.port);
        if (!number)
            return wrong(where, {errc::in_use},
                         where.port ? fmt::format("port {} of this rank is in use, expected a free "
                                                  "one, or none to get one",
                                                  *where.port)
                                    : "all 65535 ports of this rank are in use");
        std::unique_ptr<mpi_carrier> carrier;
        try {
            carrier = std::make_unique<mpi_carrier>(mpi, *number, options.silence_limit);
        } catch (...) {
            mpi.give_back_number(*number);
            throw;
        }
        packet_port_traits traits;
        traits.transport = "mpi";
        traits.packet_bytes = mpi_carrier::packet_bytes;
        traits.eager_bytes = 66 << 10;
        traits.listens = true;
        traits.between_processes = mpi.size() > 1;
        traits.between_hosts = mpi.size() > 1;
        return make_packet_port(std::move(carrier), traits, options);
    } catch (const error& why) {
        return wrong(where, why.code(), why.what());
    }
};

}  // namespace
}  // namespace amalgam::detail

AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new amalgam::detail::mpi_transport; })
