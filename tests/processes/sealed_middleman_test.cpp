// A middleman in the network between two hosts whose packets are sealed: the router takes every
// connection in either direction for itself, those that UCX and libfabric make by themselves too,
// and does what it likes with what the caller says there.
#include <algorithm>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/netfilter_ipv4.h>
#include <poll.h>
#include <sys/socket.h>

#include "fabric/sockets/socket_address.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "processes/lab_keys.hpp"
#include "processes/network_host.hpp"

namespace amalgam::processes {
namespace {

using conformance::channel;
using conformance::child_process;
using detail::raw_listener;
using detail::socket_address;
using detail::tcp_raw_peer;

constexpr std::uint16_t redirected = 7001;
constexpr std::uint16_t introductions = 7000;

/// Passes connections on to where they were meant for.
class proxy {
public:
    explicit proxy(channel& line) : line_(line) {}

    void serve() {
        line_.say("ready");
        for (;;) {
            std::vector<pollfd> all{{line_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
            for (const connection& each : connections_)
                for (const tcp_raw_peer* end : {&each.caller, &each.server})
                    all.push_back({end->fd(), POLLIN, 0});
            ::poll(all.data(), all.size(), -1);
            std::size_t at = 2;
            for (auto each = connections_.begin(); each != connections_.end(); at += 2) {
                const bool goes_on = (all[at].revents == 0 || from_caller(*each)) &&
                                     (all[at + 1].revents == 0 || pass(each->server, each->caller));
                each = goes_on ? std::next(each) : connections_.erase(each);
            }
            if (all[1].revents != 0) take_in();
            if (all[0].revents != 0) obey(line_.hear());
        }
    }

private:
    struct connection {
        tcp_raw_peer caller, server;
        bool has_packets;
    };

    void obey(const std::string& order) {
        if (order == "doing?") {
            line_.say(order_);
        } else if (order == "recorded") {
            line_.say(recorded_.substr(recorded_.size() -
                                       std::min(recorded_.size(), std::size_t{60'000})));
        } else {
            line_.say(order_ = order);
        }
    }
    void take_in() {
        tcp_raw_peer near_end(listener_.accept());
        sockaddr_in meant{};
        socklen_t bytes = sizeof meant;
        if (::getsockopt(near_end.fd(), SOL_IP, SO_ORIGINAL_DST, &meant, &bytes) != 0) return;
        char host[INET_ADDRSTRLEN] = {};
        ::inet_ntop(AF_INET, &meant.sin_addr, host, sizeof host);
        const std::uint16_t port = ntohs(meant.sin_port);
        const bool is_callers = socket_address::far_end(near_end.fd()).host().starts_with("10.1.");
        tcp_raw_peer far_end("tcp://" + std::string(host) + ":" + std::to_string(port));
        const bool has_packets = port != introductions;
        if (is_callers)
            connections_.push_back({std::move(near_end), std::move(far_end), has_packets});
        else
            connections_.push_back({std::move(far_end), std::move(near_end), has_packets});
    }
    static bool pass(tcp_raw_peer& from, tcp_raw_peer& to) {
        const std::string bytes = from.receive();
        return !bytes.empty() && to.send(bytes);
    }
    /// False: that connection is over.
    bool from_caller(connection& on) {
        if (!on.has_packets) return pass(on.caller, on.server);
        std::string bytes = on.caller.receive();
        if (bytes.empty()) return false;
        recorded_ += bytes;
        const std::string order = order_;
        if (order != "pass" && order != "hold") order_ = "pass";  // Once.
        if (order == "change") bytes[bytes.size() / 2] ^= 1;
        if (order == "reflect") return on.caller.send(bytes);
        if (order == "drop") return true;
        if (order == "hold") {
            if (held_.empty()) {
                held_ = bytes;
                return true;
            }
            order_ = "pass";
            bytes += std::exchange(held_, {});
        }
        if (order == "repeat") bytes += bytes;
        if (order != "cut") return on.server.send(bytes);
        (void)on.server.send(bytes.substr(0, bytes.size() - 1));
        return false;
    }

    channel& line_;
    raw_listener listener_{16, "0.0.0.0", redirected};
    std::list<connection> connections_;
    std::string order_ = "pass", held_, recorded_;
};

class sealed_middleman : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (auto why = network_host::why_not(true))
            GTEST_SKIP() << "no network of our own here: " << *why;
        keys.add("server", {"10.2.0.2"});
        keys.add("caller", {"10.1.0.2"});
        net.emplace();
        net->server.run("ip route add default via 10.2.0.1");
        net->router.run(
            "nft 'table ip nat { chain in { type nat hook prerouting priority -100; "
            "iifname { home0, out0 } meta l4proto tcp redirect to :7001; }; }'");
        between.emplace(net->router.start([](channel& line) { proxy(line).serve(); }));
        ASSERT_EQ(between->line().hear(), "ready");
        net->server.open(with_key("10.2.0.2:7000", "server"));
        net->caller.open(with_key("", "caller"));
        // Behind the answer both know all of each other.
        ASSERT_EQ(net->caller.send(there(), "hello"), "ok");
        EXPECT_EQ(net->server.receive().rfind("hello from ", 0), 0u);
        EXPECT_EQ(net->server.reply("answer"), "ok");
        EXPECT_EQ(net->caller.receive().rfind("answer from ", 0), 0u);
    }
    std::string there() const { return keys.address("10.2.0.2:7000"); }
    std::string with_key(const std::string& address, const std::string& name) const {
        const bool is_ucx = GetParam().starts_with("ucx");
        return keys.uri(address, name) + (is_ucx ? "&trusted_wire=yes" : "");
    }
    std::string tell(const std::string& order) {
        between->line().say(order);
        return between->line().hear();
    }
    /// That connection is lost to both, with a count of why, and nothing came over it; a new one
    /// works.
    void expect_nothing_taken() {
        while (net->server.lost() == 0 || net->caller.lost() == 0) {
        }
        EXPECT_EQ(tell("pass"), "pass");
        EXPECT_EQ(net->caller.send(there(), "after"), "ok");
        EXPECT_EQ(net->server.receive().rfind("after from ", 0), 0u);
    }
    void expect_told(network_host& who) {
        const std::string told = who.explain();
        EXPECT_NE(told.find("; 1 packets that were changed"), std::string::npos) << told;
    }

    const lab_keys keys{GetParam()};
    std::optional<two_subnets> net;
    std::optional<child_process> between;
};

TEST_P(sealed_middleman, that_only_listens_learns_nothing) {
    const std::string secret(300, 's');
    EXPECT_EQ(net->caller.send(there(), secret), "ok");
    EXPECT_EQ(net->server.receive().rfind(secret + " from ", 0), 0u);
    const std::string recorded = tell("recorded");
    EXPECT_GT(recorded.size(), secret.size()) << "it is where packets go";
    EXPECT_EQ(recorded.find("ssssssss"), std::string::npos);
}

TEST_P(sealed_middleman, that_changes_a_packet_has_nothing_taken) {
    tell("change");
    // Long, so that it is the packet, and not what the library says of it.
    net->caller.post("pay 1 to node7" + std::string(300, '.'));
    expect_nothing_taken();
    expect_told(net->server);
}

TEST_P(sealed_middleman, that_sends_a_packet_back_has_nothing_taken) {
    tell("reflect");
    net->caller.post("pay 1 to node7");
    while (tell("doing?") == "reflect") {
    }
    // Nor is anything taken that comes behind the one that is missing.
    net->caller.post("pay 1 to node8");
    expect_nothing_taken();
}

TEST_P(sealed_middleman, that_cuts_a_packet_has_nothing_taken) {
    tell("cut");
    net->caller.post("pay 1 to node7");
    expect_nothing_taken();
}

TEST_P(sealed_middleman, that_leaves_a_packet_out_has_nothing_taken_behind_it) {
    tell("drop");
    net->caller.post("pay 1 to node7");
    while (tell("doing?") == "drop") {
    }
    net->caller.post("pay 1 to node8");
    expect_nothing_taken();
    expect_told(net->server);
}

TEST_P(sealed_middleman, that_changes_the_order_has_nothing_taken) {
    tell("hold");
    net->caller.post("pay 1 to node7");
    while (tell("doing?") == "hold") {
        net->caller.post("pay 1 to node8");
    }
    expect_nothing_taken();
    expect_told(net->server);
}

TEST_P(sealed_middleman, that_repeats_a_packet_has_it_taken_once) {
    tell("repeat");
    net->caller.post("pay 1 to node7");
    EXPECT_EQ(net->server.receive().rfind("pay 1 to node7 from ", 0), 0u);
    expect_nothing_taken();
    expect_told(net->server);
}

#ifdef AMALGAM_WITH_UCX
INSTANTIATE_TEST_SUITE_P(ucx, sealed_middleman, testing::Values("ucx+tcp+tls"));
#endif
#ifdef AMALGAM_WITH_OFI
INSTANTIATE_TEST_SUITE_P(ofi, sealed_middleman, testing::Values("ofi+tcp+tls"));
#endif
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(sealed_middleman);

}  // namespace
}  // namespace amalgam::processes
