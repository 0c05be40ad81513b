// A peer that is introduced as a port is, and then uses libfabric as no port does.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_rma.h>

#include "fabric/limits.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/ofi/library.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

constexpr std::uint64_t introduction_tag = 0x316f7274'6c616d41u;
constexpr std::string_view scheme = "ofi+tcp";

/// One connected endpoint of libfabric's, to a port.
class stranger {
public:
    /// `port` makes progress meanwhile.
    explicit stranger(tcp_test_port& port)
        : port_(port), introduction_("tcp" + port.end->address().substr(scheme.size())) {
        introduction_.send(encoded_hello({.incarnation = 77}).bytes());
        hello_reader reader;
        wait([&] {
            return introduction_.has_something() &&
                   reader.read(introduction_.fd()) == hello_reader::state::complete;
        });
        std::vector<std::byte> greeting(10);
        store_le(greeting.data() + 8, static_cast<std::uint16_t>(scheme.size()));
        const const_bytes kind = as_bytes_of(scheme);
        greeting.insert(greeting.end(), kind.begin(), kind.end());
        introduction_.send_frame({.kind = frame_kind::unexpected, .tag = introduction_tag},
                                 greeting);
        read_greeting();
        open();
    }
    /// A write with immediate data, to no memory: it needs no key.
    void write_to_nothing() {
        fi_msg_rma none{};
        none.data = 1234;
        none.context = this;
        require_ofi(fi_writemsg(end_.get(), &none, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE),
                    "write");
        fi_cq_data_entry done{};
        wait([&] {
            return fi_cq_read(completions_.get(), &done, 1) == 1 && done.op_context == this;
        });
    }

private:
    /// `takes` may take what it waits for, and is not asked again then.
    template <typename Takes>
    void wait(Takes takes) {
        bool reached = false;
        move_until({&port_}, [&] { return reached = reached || takes(); });
    }
    void read_greeting() {
        std::string all;
        const auto bytes = [&] { return reinterpret_cast<const std::byte*>(all.data()); };
        wait([&] {
            if (introduction_.has_something()) all += introduction_.receive();
            return all.size() >= 16 && all.size() >= 16 + from_wire(bytes()).bytes;
        });
        their_id_ = load_le<std::uint64_t>(bytes() + 16);
        const std::size_t length = from_wire(bytes()).bytes - 10 - scheme.size();
        const uri name = uri::parse(all.substr(16 + 10 + scheme.size(), length));
        at_ = socket_address::numeric(name.host, name.port.value()).value();
    }
    void open() {
        const ofi_info hints(fi_allocinfo());
        hints->caps = FI_MSG | FI_RMA;
        hints->ep_attr->type = FI_EP_MSG;
        hints->fabric_attr->prov_name = ::strdup("tcp");
        fi_info* found = nullptr;
        require_ofi(fi_getinfo(FI_VERSION(1, 17), at_.host().c_str(),
                               std::to_string(at_.port()).c_str(), 0, hints.get(), &found),
                    "find the port");
        info_.reset(found);
        fid_fabric* fabric = nullptr;
        require_ofi(fi_fabric(info_->fabric_attr, &fabric, nullptr), "open the fabric");
        fabric_.reset(fabric);
        fid_domain* domain = nullptr;
        require_ofi(fi_domain(fabric, info_.get(), &domain, nullptr), "open the domain");
        domain_.reset(domain);
        fi_eq_attr of_events{};
        fid_eq* events = nullptr;
        require_ofi(fi_eq_open(fabric, &of_events, &events, nullptr), "open events");
        events_.reset(events);
        fi_cq_attr of_completions{};
        of_completions.format = FI_CQ_FORMAT_DATA;
        fid_cq* completions = nullptr;
        require_ofi(fi_cq_open(domain, &of_completions, &completions, nullptr), "open a queue");
        completions_.reset(completions);
        fid_ep* end = nullptr;
        require_ofi(fi_endpoint(domain, info_.get(), &end, nullptr), "open an endpoint");
        end_.reset(end);
        require_ofi(fi_ep_bind(end, &events->fid, 0), "bind it");
        require_ofi(fi_ep_bind(end, &completions->fid, FI_TRANSMIT | FI_RECV), "bind it");
        require_ofi(fi_enable(end), "enable it");
        require_ofi(fi_connect(end, at_.data(), &their_id_, sizeof their_id_), "connect");
        alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 64> entry;
        std::uint32_t what = 0;
        wait([&] { return fi_eq_read(events, &what, entry.data(), entry.size(), 0) > 0; });
        EXPECT_EQ(what, FI_CONNECTED);
        // For what the port says first: behind it come the answers to writes.
        for (std::byte* at = arrivals_.data(); at < arrivals_.data() + arrivals_.size();
             at += limits::packet_bytes)
            require_ofi(fi_recv(end, at, limits::packet_bytes, nullptr, 0, nullptr), "receive");
    }

    tcp_test_port& port_;
    tcp_raw_peer introduction_;
    std::uint64_t their_id_ = 0;
    socket_address at_;
    std::vector<std::byte> arrivals_ = std::vector<std::byte>(4 * limits::packet_bytes);
    ofi_info info_;
    ofi_handle<fid_fabric> fabric_;
    ofi_handle<fid_domain> domain_;
    ofi_handle<fid_eq> events_;
    ofi_handle<fid_cq> completions_;
    ofi_handle<fid_ep> end_;
};

TEST(ofi_stranger, write_with_immediate_data_harms_nobody) {
    for (const char* where : {"ofi+tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0?one_sided=any"}) {
        SCOPED_TRACE(where);
        tcp_test_port port(transport_registry::installed().open(where).value());
        tcp_test_port friendly(transport_registry::installed().open(where).value());
        stranger one(port);
        for (int i = 0; i < 200; ++i)
            one.write_to_nothing();
        const auto [there, back] = connect(friendly, port);
        EXPECT_TRUE(port.send(back, 5, "still here"));
        move_until({&port, &friendly}, [&] { return !friendly.arrived.empty(); });
        EXPECT_EQ(friendly.arrived.front().text, "still here");
    }
}

}  // namespace
}  // namespace amalgam::detail
