#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "rpc/loop_pair.hpp"

// Which of several addresses are used.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A shared memory name that no other process here has.
std::string shm_name(const char* what) {
    return "shm://route-search-" + std::to_string(::getpid()) + "-" + what;
}

TEST(route_search, a_name_that_any_host_may_have_needs_one_that_means_the_same_everywhere) {
    std::string nobody;
    {
        const engine gone{"tcp://127.0.0.1:0"};
        nobody = gone.address();
    }
    engine right{{shm_name("right").c_str(), "tcp://127.0.0.1:0"}}, wrong{shm_name("wrong")};
    right.define("which", [] { return 1; });
    wrong.define("which", [] { return 2; });
    engine client{{"shm://", "tcp://"}};
    const auto which = [&](const std::vector<std::string>& addresses) {
        return client.procedure<int()>("which").on(client.lookup(addresses))();
    };
    const std::string by_shm = right.addresses()[0], by_tcp = right.addresses()[1];
    // Another engine has the name on this host: the list means the one behind tcp.
    EXPECT_EQ(which({wrong.address(), by_tcp}), 1);
    const std::string told = client.lookup({wrong.address(), by_tcp}).explain();
    EXPECT_NE(told.find(wrong.address() + " (another engine"), std::string::npos) << told;
    // The same engine: the nearer path is used.
    const std::string near = client.lookup({by_tcp, by_shm}).explain();
    EXPECT_EQ(near.find(by_shm + " is used"), 0u) << near;
    // Nothing identifies the engine: it could be any.
    const error why = error_of([&] { (void)client.lookup({by_shm, nobody}); });
    EXPECT_EQ(why.code(), errc::unreachable);
    EXPECT_NE(std::string(why.what()).find("may be another engine"), std::string::npos)
        << why.what();
    // A list with only this address means whoever answers there.
    EXPECT_EQ(which({by_shm}), 1);
    EXPECT_EQ(which({wrong.address()}), 2);
}

TEST(route_search, a_way_that_was_lost_is_gained_back_by_looking_up_again_and_not_before) {
    loop_network net;
    std::vector<std::unique_ptr<port>> both;
    both.push_back(net.port("a"));
    both.push_back(net.port("b"));
    engine server{std::move(both)};
    engine client{net.port("client")};
    server.define("port", [] { return call_context::current().port(); });
    const auto in_client = [&](auto work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    };
    const auto find = [&] { return in_client([&] { return client.lookup(server.addresses()); }); };
    const auto port_used = [&](const peer& there) {
        return in_client([&] { return client.procedure<std::size_t()>("port").on(there)(); });
    };
    const peer there = find();
    EXPECT_EQ(port_used(there), 0u);
    net.cut("a");
    net.run_until_idle();
    net.heal("a");
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(port_used(there), 1u);
        net.run_for(1h);
    }
    EXPECT_EQ(client.ways(there).size(), 1u);
    const peer again = find();
    EXPECT_EQ(port_used(again), 0u);
    EXPECT_EQ(client.ways(again).size(), 2u);
}

}  // namespace
}  // namespace amalgam
