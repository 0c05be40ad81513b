// Descriptors of memory that is reachable over several paths.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "bulk/bulk_testing.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A server listening at two addresses, and a client that looked up both.
struct two_ways {
    ~two_ways() { held = bulk(); }

    template <typename Work>
    auto in_client(Work work) {
        return in(client, std::move(work));
    }
    template <typename Work>
    auto in(engine& which, Work work) {
        auto done = which.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    two_ways() {
        there = in_client([&] { return client.lookup(server.addresses()); });
    }
    /// Gives the server a descriptor from the client.
    void send(const bulk& what) {
        server.define("hold", [&](bulk one) { held = std::move(one); });
        in_client([&] { client.procedure<void(bulk)>("hold").on(there)(what); });
        server.undefine("hold");
    }
    void lose(const char* name) {
        net.cut(name);
        net.run_until_idle();
        net.heal(name);
    }

    loop_network net;
    std::vector<std::unique_ptr<port>> ports = [this] {
        std::vector<std::unique_ptr<port>> both;
        both.push_back(net.port("a"));
        both.push_back(net.port("b"));
        return both;
    }();
    engine server{std::move(ports)};
    engine client{net.port("client")};
    peer there;
    bulk held;
};

TEST(bulk_routes, who_was_looked_up_reaches_the_caller_by_all_ways_it_came) {
    two_ways t;
    std::vector<std::byte> memory = pattern(5 << 20), got(memory.size());
    const exposed shown = expose(t.client, memory, access::read);
    t.send(shown);
    std::size_t a = 0, b = 0;
    t.net.on_event([&](const loop_event& e) {
        if (e.what == loop_event::kind::frame) (e.to == "a" ? a : b) += e.bytes;
    });
    t.in(t.server, [&] { t.held.pull(got, {.striped = true}); });
    EXPECT_TRUE(got == memory);
    EXPECT_GT(a, 1u << 20);
    EXPECT_GT(b, 1u << 20);
}

TEST(bulk_routes, a_transfer_outlives_the_way_that_its_descriptor_came) {
    two_ways t;
    std::vector<std::byte> memory = pattern(5 << 20), got(memory.size());
    const exposed shown = expose(t.client, memory, access::read_write);
    t.send(shown);
    t.net.delay(1ms);
    std::vector<std::uint64_t> told;
    auto later =
        t.held.start_pull(got, {.on_progress = [&](std::uint64_t done) { told.push_back(done); }});
    t.net.run_for(4ms);
    t.lose("a");
    ASSERT_TRUE(later.ready());
    EXPECT_TRUE(later.wait().ok());
    EXPECT_TRUE(got == memory);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(std::adjacent_find(told.begin(), told.end()), told.end());
    EXPECT_EQ(told.back(), memory.size());
    // A new transfer uses the other path from the start.
    const auto fresh = pattern(3 << 20, 2);
    t.in(t.server, [&] { t.held.push(7, fresh); });
    EXPECT_TRUE(std::equal(fresh.begin(), fresh.end(), memory.begin() + 7));
}

TEST(bulk_routes, a_descriptor_sent_after_a_way_was_lost_names_the_way_it_came) {
    two_ways t;
    t.lose("a");
    std::vector<std::byte> memory = pattern(100000), got(memory.size());
    const exposed shown = expose(t.client, memory, access::read);
    t.send(shown);
    t.in(t.server, [&] { t.held.pull(got); });
    EXPECT_TRUE(got == memory);
}

TEST(bulk_routes, owned_memory_stays_while_any_way_does_and_is_released_by_any) {
    two_ways t;
    t.send(expose_owned(t.client, pattern(100000)));
    EXPECT_EQ(counters_of(t.client).at("rpc.lent"), 1u);
    t.lose("a");
    std::vector<std::byte> got(100000);
    t.in(t.server, [&] { t.held.pull(got); });
    EXPECT_TRUE(got == pattern(100000));
    EXPECT_EQ(counters_of(t.client).at("rpc.lent"), 1u);
    t.held = bulk();
    t.net.run_until_idle();
    EXPECT_EQ(counters_of(t.client).at("rpc.lent"), 0u);

    t.send(expose_owned(t.client, pattern(100000)));
    t.lose("b");
    EXPECT_EQ(counters_of(t.client).at("rpc.lent"), 0u) << "the last way is lost";
}

struct real_ways {
    std::vector<const char*> server;
    std::vector<const char*> client;
    const char* best;
};
class bulk_routes_on : public testing::TestWithParam<real_ways> {
protected:
    static std::vector<std::string> texts(const std::vector<const char*>& uris) {
        return {uris.begin(), uris.end()};
    }
};
INSTANTIATE_TEST_SUITE_P(tcp, bulk_routes_on,
                         testing::Values(real_ways{
                             {"tcp://127.0.0.1:0", "tcp://127.0.0.1:0"}, {"tcp://"}, "tcp://"}));
INSTANTIATE_TEST_SUITE_P(
    both, bulk_routes_on,
    testing::ValuesIn(std::vector<real_ways>{
        unless_thread_sanitizer({""}).empty()
            ? real_ways{{"tcp://127.0.0.1:0"}, {"tcp://"}, "tcp://"}
            : real_ways{{"tcp://127.0.0.1:0", "shm://"}, {"tcp://", "shm://"}, "shm://"}}));

TEST_P(bulk_routes_on, a_piece_longer_than_any_memory_is_all_of_it) {
    engine server{texts(GetParam().server)}, client{texts(GetParam().client)};
    std::vector<std::byte> memory = pattern(300000), mine(memory.size());
    const exposed here = expose(server, memory, access::read_write);
    server.define("memory", [&] { return bulk(here); });
    const bulk far = client.procedure<bulk()>("memory").on(client.lookup(server.addresses()))();
    for (const bool striped : {false, true}) {
        const bulk_options all{.chunk_bytes = std::numeric_limits<std::size_t>::max(),
                               .striped = striped};
        far.pull(mine, all);
        EXPECT_TRUE(mine == memory);
        std::reverse(mine.begin(), mine.end());
        far.push(mine, all);
        EXPECT_TRUE(memory == mine);
    }
}

TEST_P(bulk_routes_on, both_sides_move_bytes_over_all_ways) {
    engine server{texts(GetParam().server)}, client{texts(GetParam().client)};
    std::vector<std::byte> memory = pattern(8 << 20);
    server.define("reverse_halves", [](bulk what) {
        std::vector<std::byte> all(what.bytes());
        what.pull(all, {.striped = true});
        std::rotate(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
        what.push(all, {.striped = true});
    });
    const exposed here = expose(server, memory, access::read_write);
    server.define("memory", [&] { return bulk(here); });

    const peer there = client.lookup(server.addresses());
    EXPECT_EQ(there.explain().find(GetParam().best), 0u) << there.explain();
    auto mine = memory;
    {
        const exposed shown = expose(client, mine, access::read_write);
        client.procedure<void(bulk)>("reverse_halves").on(there)(shown);
    }
    auto model = memory;
    std::rotate(model.begin(), model.begin() + (4 << 20), model.end());
    EXPECT_TRUE(mine == model);

    const bulk far = client.procedure<bulk()>("memory").on(there)();
    far.push(mine, {.striped = true});
    EXPECT_TRUE(memory == model);
    std::fill(mine.begin(), mine.end(), std::byte{0});
    far.pull(mine, {.chunk_bytes = 100000, .striped = true});
    EXPECT_TRUE(mine == model);
    for (int i = 0; i < 8; ++i) {
        std::vector<std::byte> some(memory.size());
        {
            auto later = far.start_pull(some, {.striped = i % 2 == 0});
            if (i % 4 < 2) later.cancel();
        }
        std::fill(some.begin(), some.end(), std::byte{1});
        EXPECT_TRUE(all_are(some, std::byte{1}));
    }
}

}  // namespace
}  // namespace amalgam
