// Behavior that only a network shows: address translation, several interfaces, a cut cable.
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "processes/lab_keys.hpp"
#include "processes/network_host.hpp"

namespace amalgam::processes {
namespace {

#define AMALGAM_NEEDS_NETWORKS(nat)            \
    if (auto why = network_host::why_not(nat)) \
    GTEST_SKIP() << "no network of our own here: " << *why

testing::AssertionResult begins(const std::string& text, const std::string& with) {
    if (text.compare(0, with.size(), with) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << '"' << text << "\" does not begin with \"" << with << '"';
}

std::string port_of(const std::string& address) {
    return address.substr(address.rfind(':') + 1);
}

/// For each transport in this build that works between networks.
struct between_networks : testing::TestWithParam<std::string> {
    void SetUp() override {
        keys.add("server", {"10.2.0.2"});
        keys.add("caller", {"10.1.0.2"});
    }
    const lab_keys keys{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(tcp, between_networks, testing::Values("tcp", "tcp+tls"));
#ifdef AMALGAM_WITH_OFI
INSTANTIATE_TEST_SUITE_P(ofi, between_networks, testing::Values("ofi+tcp"));
#endif
#ifdef AMALGAM_WITH_UCX
INSTANTIATE_TEST_SUITE_P(ucx, between_networks, testing::Values("ucx+tcp"));
#endif

TEST_P(between_networks, a_caller_behind_address_translation_is_answered_on_its_own_connection) {
    AMALGAM_NEEDS_NETWORKS(true);
    two_subnets net;
    net.router.run(
        "nft 'table ip nat { chain out { type nat hook postrouting priority 100; "
        "oifname out0 masquerade; }; }'");

    const std::string address = net.server.open(keys.uri("10.2.0.2:0", "server"));
    EXPECT_EQ(net.caller.open(keys.uri("", "caller")), "");
    EXPECT_EQ(net.caller.send(address, "question"), "ok");
    // The server sees only the router, and has no route to the caller.
    EXPECT_TRUE(begins(net.server.receive(), "question from " + keys.address("10.2.0.1:")));
    EXPECT_EQ(net.server.reply("answer"), "ok");
    EXPECT_EQ(net.caller.receive(), "answer from " + address);
}

#ifdef AMALGAM_WITH_UCX
TEST(behind_translation, a_server_is_unreachable_over_ucx_which_says_its_own_addresses) {
    AMALGAM_NEEDS_NETWORKS(true);
    two_subnets net;
    net.caller.run("ip route del default");
    net.server.run("ip route add default via 10.2.0.1");
    net.router.run(
        "nft 'table ip nat { chain in { type nat hook prerouting priority -100; "
        "tcp dport 7000 dnat to 10.2.0.2; }; }'");
    net.server.open("ucx+tcp://10.2.0.2:7000");
    net.caller.open("ucx+tcp://");
    EXPECT_EQ(net.caller.send("ucx+tcp://10.1.0.1:7000", "question"), "unreachable");
    // Such a server must use this.
    net.server.open("tcp://10.2.0.2:7000");
    net.caller.open("tcp://");
    EXPECT_EQ(net.caller.send("tcp://10.1.0.1:7000", "question"), "ok");
}
#endif

TEST_P(between_networks, hosts_in_two_subnets_reach_each_other_over_a_router) {
    AMALGAM_NEEDS_NETWORKS(true);
    two_subnets net;
    net.server.run("ip route add default via 10.2.0.1");

    const std::string there = net.server.open(keys.uri("10.2.0.2:0", "server"));
    const std::string here = net.caller.open(keys.uri("up0:0", "caller"));
    EXPECT_TRUE(begins(there, keys.address("10.2.0.2:")));
    EXPECT_TRUE(begins(here, keys.address("10.1.0.2:")));
    EXPECT_EQ(net.caller.send(there, "go"), "ok");
    EXPECT_TRUE(begins(net.server.receive(), "go from " + keys.address("10.1.0.2:")));
    EXPECT_EQ(net.server.send(here, "back"), "ok");
    EXPECT_TRUE(begins(net.caller.receive(), "back from " + keys.address("10.2.0.2:")));
}

/// Two hosts with two cables between them.
struct two_cables : testing::Test {
    void SetUp() override {
        AMALGAM_NEEDS_NETWORKS(true);
        here.emplace();
        there.emplace();
        here->plug("first0", "10.1.0.1/24", *there, "first0", "10.1.0.2/24");
        here->plug("second0", "10.2.0.1/24", *there, "second0", "10.2.0.2/24");
    }
    std::optional<network_host> here, there;
};

/// With each transport whose connections are sockets of ours.
struct sockets_over_two_cables : two_cables, testing::WithParamInterface<std::string> {
    void SetUp() override {
        two_cables::SetUp();
        keys.add("here", {"10.1.0.1", "10.2.0.1", "fe80::1"});
        keys.add("there", {"10.1.0.2", "10.2.0.2", "fe80::2"});
    }
    /// Opens a port with the host's key.
    std::string open_here(const std::string& where, int silence_limit_ms = 5000) {
        return here->open(keys.uri(where, "here"), silence_limit_ms);
    }
    std::string open_there(const std::string& where, int silence_limit_ms = 5000) {
        return there->open(keys.uri(where, "there"), silence_limit_ms);
    }
    const lab_keys keys{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(tcp, sockets_over_two_cables, testing::Values("tcp", "tcp+tls"));

TEST_P(sockets_over_two_cables, a_port_named_by_its_interface_listens_there_and_is_left_by_it) {
    const std::string address = open_there("10.1.0.2:0");
    // The preferred route is the first cable, which drops everything.
    here->run("ip route add 10.1.0.2/32 dev second0 metric 4000");
    here->run("ip route add 10.1.0.2/32 dev first0 metric 1");
    there->run(
        "nft 'table ip f { chain i { type filter hook input priority 0; "
        "iifname first0 drop; }; }'");

    open_here("10.1.0.1:0", 300);
    EXPECT_EQ(here->send(address, "by the first"), "unreachable");

    const std::string own = open_here("second0:0");
    EXPECT_TRUE(begins(own, keys.address("10.2.0.1:")));
    EXPECT_NE(here->explain().find("second0"), std::string::npos);
    EXPECT_EQ(here->send(address, "by the second"), "ok");
    EXPECT_TRUE(begins(there->receive(), "by the second from " + keys.address("10.2.0.1")));

    open_there("10.2.0.2:0");
    EXPECT_EQ(there->send(own, "back"), "ok");
    EXPECT_TRUE(begins(here->receive(), "back"));
}

TEST_P(sockets_over_two_cables, ports_of_one_host_at_one_interface_reach_each_other) {
    const std::string address = open_here("first0:0");
    EXPECT_EQ(here->send(address, "to myself"), "ok");
    EXPECT_TRUE(begins(here->receive(), "to myself from " + keys.address("10.1.0.1:")));
}

TEST_P(sockets_over_two_cables, an_address_that_was_asked_for_is_the_one_others_see) {
    const std::string address = open_there("0.0.0.0:0");
    EXPECT_EQ(address.find("0.0.0.0"), std::string::npos);
    open_here("10.2.0.1:0");
    EXPECT_EQ(here->send(keys.address("10.1.0.2:") + port_of(address), "x"), "ok");
    EXPECT_TRUE(begins(there->receive(), "x from " + keys.address("10.2.0.1")));
}

TEST_F(two_cables, an_unknown_interface_is_answered_with_those_there_are) {
    const std::string sentence = here->complaint("tcp://third0:7000");
    EXPECT_NE(sentence.find("third0"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("first0 (10.1.0.1"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("second0 (10.2.0.1"), std::string::npos) << sentence;
}

TEST_P(sockets_over_two_cables, link_local_addresses_work_with_their_zone) {
    for (auto* host : {&*here, &*there}) {
        host->run("ip address add fe80::" + std::string(host == &*here ? "1" : "2") +
                  "/64 dev first0 nodad");
    }
    const std::string address = open_there("[fe80::2%first0]:0");
    EXPECT_TRUE(begins(address, keys.address("[fe80::2%first0]:")));
    open_here("[fe80::1%first0]:0");
    EXPECT_EQ(here->send(address, "x"), "ok");
    EXPECT_TRUE(begins(there->receive(), "x from " + keys.address("[fe80::1%first0")));
}

TEST_P(sockets_over_two_cables, a_host_that_is_cut_off_is_lost_when_the_limit_is_over) {
    for (const bool idle : {true, false}) {
        const std::string address = open_there("10.1.0.2:0", 1000);
        open_here("10.1.0.1:0", 1000);
        while (here->send(address, "x") != "ok") {
        }  // The cable takes a moment to be up again.
        there->receive();
        const int lost_before = here->lost();
        there->run("ip link set first0 down");
        // Waiting for it, or with unacknowledged bytes in flight.
        if (!idle) here->post(std::string(20'000, 'x'));
        here->expect();
        EXPECT_EQ(here->ended(), "disconnected");
        EXPECT_EQ(here->lost(), lost_before + 1);
        there->run("ip link set first0 up");
        // A new connection is made, by ports that stayed.
        while (here->send(address, "again") != "ok") {
        }
        std::string heard = there->receive();
        if (heard.front() == 'x') heard = there->receive();  // The kernel had not given it up.
        EXPECT_TRUE(begins(heard, "again"));
    }
}

TEST_P(sockets_over_two_cables, a_cut_shorter_than_the_limit_loses_nothing) {
    const std::string address = open_there("10.1.0.2:0", 60'000);
    open_here("10.1.0.1:0", 60'000);
    ASSERT_EQ(here->send(address, "before"), "ok");
    there->run("ip link set first0 down");
    here->post("during");
    there->run("ip link set first0 up");
    EXPECT_TRUE(begins(there->receive(), "before"));
    EXPECT_TRUE(begins(there->receive(), "during"));
    EXPECT_EQ(here->lost(), 0);
}

#ifdef AMALGAM_WITH_OFI
TEST_F(two_cables, a_filter_for_the_second_connection_of_libfabric_makes_a_host_unreachable) {
    const std::string address = there->open("ofi+tcp://10.1.0.2:7000");
    here->open("ofi+tcp://10.1.0.1:0", 300);
    there->run(
        "nft 'table ip f { chain i { type filter hook input priority 0; tcp dport != 7000 drop; }; "
        "}'");
    EXPECT_EQ(here->send(address, "x"), "unreachable");
}
#endif

TEST_P(sockets_over_two_cables, a_host_that_never_answers_is_unreachable_when_the_limit_is_over) {
    open_here("10.1.0.1:0", 300);
    there->run("nft 'table ip f { chain i { type filter hook input priority 0; drop; }; }'");
    EXPECT_EQ(here->send(keys.address("10.1.0.2:7000"), "x"), "unreachable");
}

}  // namespace
}  // namespace amalgam::processes
