// Ports whose folders of credentials name each other's keys, and no authority.
#include <string>

#include <gtest/gtest.h>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/transports/tcp/test_port.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

class trusted_keys : public testing::Test {
protected:
    std::string self_signed(const std::string& name) {
        make_key(here.with(name), {.name = name, .self_signed = true});
        return here.with(name);
    }
    static std::string local(const std::string& folder) {
        return "tcp+tls://127.0.0.1:0?credentials=" + folder;
    }
    /// How the first message to the server ends.
    static errc fate_of(tcp_test_port& client, tcp_test_port& server) {
        tcp_test_port::operation op;
        EXPECT_EQ(client.post(client.look_up(server.end->address()), 1, "x", op), posted::pending);
        move_until({&client, &server}, [&] { return op.over; });
        return op.code;
    }

    const temp_folder here;
};

TEST_F(trusted_keys, two_ports_that_name_each_others_keys_talk_and_know_each_other_by_them) {
    const std::string one = self_signed("one"), two = self_signed("two");
    (void)trust_authority(one, two);
    (void)trust_authority(two, one);
    tcp_test_port client("tcp+tls://?credentials=" + one), server(local(two));
    const auto [there, back] = connect(client, server);
    const identity who = server.end->who(back);
    EXPECT_EQ(who.kind, identity_kind::certificate);
    EXPECT_EQ(who.name, to_text(credentials::from_folder(one)->self().key));
    EXPECT_EQ(client.end->who(there).key, credentials::from_folder(two)->self().key);
    EXPECT_TRUE(client.lost.empty() && server.lost.empty());
}

TEST_F(trusted_keys, a_port_whose_key_the_other_one_does_not_name_is_refused) {
    const std::string one = self_signed("one"), two = self_signed("two"),
                      three = self_signed("three");
    (void)trust_authority(one, two);
    (void)trust_authority(two, three);
    (void)trust_authority(three, one);
    // The server does not know the client, and the client not the server.
    tcp_test_port first(local(one)), second(local(two)), third(local(three));
    EXPECT_EQ(fate_of(first, second), errc::denied);
    EXPECT_EQ(fate_of(second, first), errc::denied);
    EXPECT_TRUE(first.arrived.empty() && second.arrived.empty());
}

TEST_F(trusted_keys, a_key_that_is_taken_out_while_the_server_runs_is_refused_from_then_on) {
    const std::string one = self_signed("one"), two = self_signed("two"),
                      three = self_signed("three");
    for (const std::string& each : {one, three}) {
        (void)trust_authority(two, each);
        (void)trust_authority(each, two);
    }
    const auto trust = credentials::from_folder(two);
    tcp_test_port server("tcp+tls://127.0.0.1:0", {.trust = trust});
    tcp_test_port client(local(one));
    const auto [there, back] = connect(client, server);
    (void)revoke_key(one, two);
    ASSERT_TRUE(trust->reload());
    ASSERT_TRUE(client.send(there, 2, "still here"));
    move_until({&client, &server}, [&] { return !server.arrived.empty(); });
    server.arrived.clear();

    // A new port, and the old one by the session that it keeps.
    tcp_test_port anew(local(one));
    EXPECT_EQ(fate_of(anew, server), errc::denied);
    client.end->close(there);
    client.end->progress();
    EXPECT_EQ(fate_of(client, server), errc::denied);
    EXPECT_TRUE(server.arrived.empty());
    tcp_test_port good(local(three));
    connect(good, server);
    EXPECT_TRUE(good.lost.empty());
}

}  // namespace
}  // namespace amalgam::detail
