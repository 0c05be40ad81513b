#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

using losses = std::vector<std::pair<peer, errc>>;

TEST(peer_lost, each_subscription_is_told_once_of_each_peer) {
    loop_pair two;
    losses first, second;
    const auto one = two.client.on_peer_lost(
        [&](const peer& who, status why) { first.emplace_back(who, why.code); });
    const auto other = two.client.on_peer_lost(
        [&](const peer& who, status why) { second.emplace_back(who, why.code); });
    two.server.define("f", [](int n) { return n; });
    const peer there = two.there();
    EXPECT_EQ(two.in_client([&] { return two.client.procedure<int(int)>("f").on(there)(1); }), 1);
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_EQ(first, (losses{{there, errc::disconnected}}));
    EXPECT_EQ(second, first);
    two.net.run_until_idle();
    EXPECT_EQ(first.size(), 1u);
}

TEST(peer_lost, an_empty_function_is_refused) {
    loop_pair net;
    EXPECT_EQ(error_of([&] { (void)net.client.on_peer_lost({}); }).code().code, errc::invalid);
}

TEST(peer_lost, the_function_may_wait_and_call) {
    loop_pair two;
    engine third{two.net.port("third")};
    third.define("f", [](int n) { return n; });
    int answer = 0;
    const auto told = two.client.on_peer_lost([&](const peer&, status) {
        this_task::sleep_for(10ms);
        answer = two.client.procedure<int(int)>("f").on("loop://third")(7);
    });
    two.there();
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_EQ(answer, 7);
}

TEST(peer_lost, a_subscription_is_told_of_one_peer_at_a_time) {
    loop_network net;
    engine client{net.port("client")};
    std::deque<engine> servers;
    for (int i = 0; i < 5; ++i) {
        servers.emplace_back(net.port(std::to_string(i)));
        servers.back().define("f", [] {});
    }
    int inside = 0, told = 0, others = 0;
    const auto one = client.on_peer_lost([&](const peer&, status) {
        EXPECT_EQ(inside++, 0);
        this_task::sleep_for(10ms);
        --inside;
        ++told;
    });
    const auto other = client.on_peer_lost([&](const peer&, status) {
        others += inside;  // Runs separately: it need not wait for the first.
    });
    const auto calls = client.spawn([&] {
        for (const engine& each : servers)
            client.procedure<void()>("f").on(each.address())();
    });
    net.run_until_idle();
    for (int i = 0; i < 5; ++i)
        net.cut(std::to_string(i));
    net.run_until_idle();
    EXPECT_EQ(told, 5);
    EXPECT_GT(others, 0);
}

TEST(peer_lost, calls_to_the_peer_have_ended_by_then) {
    loop_pair two;
    event never;
    two.server.define("wait", [&] { never.wait(); });
    const peer there = two.there();
    future<void> call = two.client.procedure<void()>("wait").on(there).start();
    two.net.run_until_idle();
    bool ended = false;
    const auto told = two.client.on_peer_lost([&](const peer&, status) { ended = call.ready(); });
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_TRUE(ended);
    never.set();
}

TEST(peer_lost, an_ended_subscription_is_told_nothing_not_even_what_was_on_its_way) {
    loop_pair two;
    int calls = 0;
    std::optional<peer_lost_subscription> other;
    // The first to be called ends the other one and itself.
    std::optional<peer_lost_subscription> one = two.client.on_peer_lost([&](const peer&, status) {
        ++calls;
        other.reset();
        one.reset();
    });
    other = two.client.on_peer_lost([&](const peer&, status) { ++calls; });
    two.there();
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_EQ(calls, 1);
    EXPECT_FALSE(one || other);
}

TEST(peer_lost, peers_that_stop_parts_from_are_not_lost) {
    int calls = 0;
    peer_lost_subscription outlives;
    {
        loop_pair two;
        outlives = two.client.on_peer_lost([&](const peer&, status) { ++calls; });
        two.server.define("f", [] {});
        two.in_client([&] { two.client.procedure<void()>("f").on(two.there())(); });
        two.client.stop();
        two.net.run_until_idle();
    }
    EXPECT_EQ(calls, 0);
}

TEST(peer_lost, who_throws_from_it_harms_nobody) {
    loop_pair two;
    bool told_too = false;
    const auto throws =
        two.client.on_peer_lost([](const peer&, status) { throw error(errc::invalid, "no"); });
    const auto after = two.client.on_peer_lost([&](const peer&, status) { told_too = true; });
    two.there();
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_TRUE(told_too);
}

class peer_lost_threads : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, peer_lost_threads, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, peer_lost_threads, testing::Values("tcp://127.0.0.1:0"));

TEST_P(peer_lost_threads, servers_that_end_are_told_of_once_each) {
    engine client{GetParam()};
    std::atomic<int> calls{0};
    event all;
    constexpr int servers = 5;
    const auto told = client.on_peer_lost([&](const peer&, status) {
        if (++calls == servers) all.set();
    });
    for (int i = 0; i < servers; ++i) {
        engine server{GetParam()};
        server.define("f", [](int n) { return n; });
        EXPECT_EQ(client.procedure<int(int)>("f").on(server.address())(i), i);
    }
    all.wait();
    EXPECT_EQ(calls, servers);
    EXPECT_EQ(counters_of(client)["rpc.peers_lost"], static_cast<std::uint64_t>(servers));
}

TEST_P(peer_lost_threads, the_end_of_a_subscription_waits_for_its_function) {
    engine client{GetParam()};
    event began, go;
    std::atomic<bool> returned{false};
    std::optional<peer_lost_subscription> told = client.on_peer_lost([&](const peer&, status) {
        began.set();
        go.wait();
        returned = true;
    });
    {
        engine server{GetParam()};
        server.define("f", [] {});
        client.procedure<void()>("f").on(server.address())();
    }
    began.wait();
    std::thread opens([&] { go.set(); });
    told.reset();
    EXPECT_TRUE(returned);
    opens.join();
}

TEST_P(peer_lost_threads, a_subscription_ends_though_its_function_is_left_behind) {
    event began, never;
    peer_lost_subscription told;
    {
        engine client{GetParam(), {.drain = 1ms}};
        told = client.on_peer_lost([&](const peer&, status) {
            began.set();
            never.wait();
        });
        engine server{GetParam()};
        server.define("f", [] {});
        client.procedure<void()>("f").on(server.address())();
        server.stop();
        began.wait();
        client.stop();
        told.end();
    }
}

// Answers of numbers are written right into the ring of whoever asked, if that is still there: the
// slot of a lost peer serves the next one.
TEST_P(peer_lost_threads, an_answer_to_a_lost_caller_reaches_no_other_one) {
    engine server{GetParam()};
    event asked, go;
    server.define("late", [&](int a) {
        asked.set();
        go.wait();
        return a;
    });
    server.define("sum", [](int a, int b) { return a + b; }, {.run = handler::inline_});
    std::atomic<int> lost = 0;
    event told;
    const auto subscribed = server.on_peer_lost([&](const peer&, status) {
        ++lost;
        told.set();
    });
    {
        engine first{GetParam(), {.drain = 0ms}};
        const peer there = first.lookup(server.address());
        EXPECT_EQ(first.procedure<int(int, int)>("sum").on(there)(1, 2), 3);
        auto never = first.procedure<int(int)>("late").on(there).start(1);
        asked.wait();
        first.stop();
    }
    told.wait();
    engine second{GetParam()};
    const auto sum = second.procedure<int(int, int)>("sum").on(server.address());
    EXPECT_EQ(sum(3, 4), 7);
    go.set();
    auto done = second.spawn([&] {
        for (int i = 0; i < 100; ++i)
            EXPECT_EQ(sum(i, 1), i + 1);
    });
    done.get();
    EXPECT_EQ(counters_of(second)["rpc.late_replies"], 0u);
    EXPECT_EQ(lost, 1);
}

// Short messages go right into a ring if that has room, but not past what waits for room.
TEST_P(peer_lost_threads, short_messages_do_not_overtake_what_is_queued) {
    constexpr int until_full = 30'000, all = until_full + 3'000;
    engine server{GetParam()}, client{GetParam(), {.max_queued = 2 * all}};
    std::atomic<bool> go{false};
    std::vector<int> got;
    server.define("note",
                  [&](int number) {
                      while (number == 0 && !go)
                          std::this_thread::yield();
                      got.push_back(number);
                  },
                  {.run = handler::inline_});
    server.define("read", [] {}, {.run = handler::inline_});
    auto done = client.spawn([&] {
        const peer there = client.lookup(server.address());
        client.procedure<void()>("read").on(there)();
        const auto note = client.procedure<void(int)>("note").on(there);
        for (int i = 0; i < until_full; ++i)
            note.post(i);
        go = true;
        for (int i = until_full; i < all; ++i) {
            note.post(i);
            if (i % 3 == 0) this_task::yield();
        }
        client.procedure<void()>("read").on(there)();
    });
    done.get();
    ASSERT_EQ(got.size(), static_cast<std::size_t>(all));
    for (int i = 0; i < all; ++i)
        ASSERT_EQ(got[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace amalgam
