#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/plugin.hpp>

#include "fabric/packets/introduction.hpp"
#include "fabric/sealing/carrier.hpp"
#include "fabric/sealing/packet_introducer.hpp"
#include "fabric/transports/mpi/carrier.hpp"
#include "fabric/transports/mpi/library.hpp"

namespace amalgam::detail {
namespace {

failure wrong(const uri& where, status why, std::string_view what) {
    return wrong_uri(where, why, what, "mpi+static");
}

/// What the ports of a rank prove themselves with.
result<std::shared_ptr<const credentials>> trust_of(const uri& where, const port_options& options) {
    constexpr const char* example = "mpi+static+tls://?credentials=FOLDER";
    const auto folder = where.option(credentials_option);
    if (folder) {
        auto read = credentials::try_from_folder(std::string(*folder));
        if (!read) return wrong_uri(where, read.why().what, read.sentence(), example);
        return read;
    }
    if (options.trust == nullptr)
        return wrong_uri(where, {errc::invalid},
                         "mpi+static+tls needs credentials, expected the option credentials with a "
                         "folder that `amalgam key` has made, or port_options::trust",
                         example);
    return options.trust;
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
        info.details = {"rma: emulated by messages, processed by the target's progress",
                        "mpi+dynamic: not supported, as Open MPI cannot cancel waiting for a peer"};
        return info;
    }

    result<std::unique_ptr<port>> open(const uri& asked, const port_options& options) const override
        try {
        uri where = asked;
        const auto said = take_trust(where);
        if (!said) return wrong(asked, said.why().what, said.why().sentence);
        result<std::shared_ptr<const credentials>> trust = std::shared_ptr<const credentials>();
        if (said->tls) trust = trust_of(asked, options);
        if (!trust) return trust.why();
        where = without_option(std::move(where), credentials_option);
        if (where.protocol != "static")
            return wrong(where, {errc::unsupported},
                         "processes started separately are not supported, as Open MPI cannot "
                         "cancel waiting for a peer that died (docs/design/mpi.md); expected "
                         "mpi+static under mpirun, or tcp or ucx");
        if (!where.options.empty())
            return wrong(
                where, {errc::invalid},
                fmt::format("unknown option \"{}\": mpi has none", where.options.front().key));
        mpi_library& mpi = mpi_library::start();
        if (!where.host.empty() && where.host != std::to_string(mpi.rank()))
            return wrong(
                where, {errc::invalid},
                fmt::format(
                    "rank {} is another process, expected no rank, or {}, the rank of this process",
                    where.host, mpi.rank()));
        const std::optional<std::uint16_t> number = mpi.take_number(where.port);
        if (!number)
            return wrong(where, {errc::in_use},
                         where.port ? fmt::format("port {} of this rank is in use; choose another, "
                                                  "or none for any free port",
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
        if (*trust == nullptr) return make_packet_port(std::move(carrier), traits, options);
        traits.transport = "mpi+tls";
        return make_sealed_port(
            std::make_unique<packet_introducer>(std::move(carrier), traits.packet_bytes, *trust,
                                                options.silence_limit, ciphers_here()),
            traits, options);
    } catch (const error& why) {
        return wrong(asked, why.code(), why.what());
    }
};

}  // namespace
}  // namespace amalgam::detail

AMALGAM_TRANSPORT_PLUGIN([]() -> amalgam::transport* { return new amalgam::detail::mpi_transport; })
