// Whole conversations over a loop network: equal seeds give equal runs, and whatever fails,
// everything completes once.

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/loop.hpp>

#include "fabric/port/port_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

/// Every port talks to every other for a while; returns all events as text.
std::string conversation(std::uint64_t seed, double drop) {
    loop_network net({.seed = seed});
    net.delay(10us, 900us);
    net.reorder(true);
    net.drop(drop);
    std::string trace;
    net.on_event([&](const loop_event& event) {
        trace += std::to_string(static_cast<int>(event.what)) + ' ' +
                 std::to_string(event.when.time_since_epoch().count()) + ' ' +
                 std::string(event.from) + '>' + std::string(event.to) + ' ' +
                 std::to_string(event.tag) + ' ' + std::to_string(event.bytes) + '\n';
    });
    struct node {
        recorded_messages sink;
        std::unique_ptr<port> end;
        std::uint64_t answered = 0;
    };
    std::vector<std::unique_ptr<node>> nodes;
    recorded ignored;
    for (int i = 0; i < 8; ++i) {
        nodes.push_back(std::make_unique<node>());
        node& here = *nodes.back();
        here.end = net.port("n" + std::to_string(i));
        here.end->set_sink(&here.sink);
        here.sink.on_each = [&](message& arrived) {
            if (++here.answered < 30)
                (void)send(*here.end, arrived.from(), arrived.tag() + 1, "answer", ignored);
        };
    }
    for (auto& from : nodes)
        for (int i = 0; i < 8; ++i)
            (void)send(*from->end, from->end->lookup("loop://n" + std::to_string(i)).value(), 100,
                       "hello", ignored);
    net.run_until_idle();
    return trace;
}

TEST(loop_network, the_same_seed_gives_the_same_run_and_another_seed_another) {
    for (double drop : {0.0, 0.02}) {
        const std::string once = conversation(42, drop);
        EXPECT_GT(once.size(), 1000u);
        EXPECT_EQ(once, conversation(42, drop));
        EXPECT_NE(once, conversation(43, drop));
    }
}

/// One operation of each kind between two ports. Returns true if all succeeded; in any case, each
/// must complete exactly once.
bool everything_once(loop_network& net, std::uint64_t n, loop_fault fault) {
    recorded_messages sink;
    std::vector<std::byte> remote = pattern(300000), local = pattern(300000, 2), received(6000);
    recorded send_op, expected_op, receive_op, put_op, get_op;
    auto a = net.port("a");
    auto b = net.port("b");
    b->set_sink(&sink);
    const mutable_bytes whole(remote);
    region target = b->open_region(whole, access::read_write).value();

    net.fail_operation(n, fault);
    const peer_id at_a = a->lookup("loop://b").value();
    // Back-pressure is not a failure: retry after the network has made progress.
    const auto insist = [&](auto&& post) {
        for (int tries = 0; tries < 100; ++tries) {
            const posted how = post();
            if (how != posted::full) return how;
            net.run_until_idle();
        }
        ADD_FAILURE() << "always full";
        return posted::full;
    };
    std::vector<std::pair<recorded*, posted>> all;
    const const_bytes text(local.data(), 6000);
    const const_bytes from(local);
    const mutable_bytes into(local);
    all.emplace_back(&send_op, insist([&] { return a->post_send(at_a, 1, {&text, 1}, send_op); }));
    net.run_until_idle();
    const peer_id at_b = sink.all.empty() ? peer_id{} : sink.all[0].from;
    all.emplace_back(&receive_op, b->post_receive(at_b, 5, received, receive_op));
    all.emplace_back(&expected_op, insist([&] {
        return a->post_send_expected(at_a, 5, {&text, 1}, expected_op);
    }));
    net.run_until_idle();
    all.emplace_back(&put_op, insist([&] {
        return a->post_put(at_a, {&from, 1}, target.key(), 0, put_op);
    }));
    net.run_until_idle();
    all.emplace_back(&get_op, insist([&] {
        return a->post_get(at_a, {&into, 1}, target.key(), 0, get_op);
    }));
    net.run_until_idle();

    bool good = true;
    for (auto [op, how] : all) {
        EXPECT_EQ(op->runs, how == posted::pending ? 1 : 0) << "fault " << n;
        good = good && op->what.ok();
    }
    EXPECT_EQ(net.open_operations(), 0u) << "fault " << n;
    if (good) {
        EXPECT_EQ(std::memcmp(received.data(), local.data(), received.size()), 0);
        EXPECT_EQ(remote, pattern(300000, 2));
    }
    return good;
}

TEST(loop_network, a_fault_at_any_operation_completes_everything_once) {
    std::uint64_t n = 1;
    for (;; ++n) {
        ASSERT_LT(n, 1000u);
        loop_network net;
        if (everything_once(net, n, loop_fault::reset)) break;
    }
    EXPECT_GT(n, 5u);
}

TEST(loop_network, back_pressure_at_any_operation_only_delays) {
    loop_network probe;
    EXPECT_TRUE(everything_once(probe, 0, loop_fault::full));
    const std::uint64_t operations = probe.operations();
    EXPECT_GT(operations, 5u);
    for (std::uint64_t n = 2; n <= operations; ++n) {  // The first opens the connection.
        loop_network net;
        EXPECT_TRUE(everything_once(net, n, loop_fault::full)) << n;
    }
}

TEST(loop_network, thousands_of_ports_share_a_network) {
    constexpr std::size_t count = 5000;
    loop_network net;
    net.delay(1us, 1ms);
    recorded_messages at_hub;
    auto hub = net.port("hub");
    hub->set_sink(&at_hub);
    recorded ignored;
    at_hub.on_each = [&](message& asked) {
        (void)send(*hub, asked.from(), asked.tag(), "answer", ignored);
    };
    struct leaf {
        recorded_messages sink;
        std::unique_ptr<port> end;
    };
    std::vector<leaf> leaves(count);
    for (std::size_t i = 0; i < count; ++i) {
        leaves[i].end = net.port("leaf" + std::to_string(i));
        leaves[i].end->set_sink(&leaves[i].sink);
        (void)send(*leaves[i].end, leaves[i].end->lookup("loop://hub").value(), i, "hello",
                   ignored);
    }
    net.run_until_idle();
    for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(leaves[i].sink.all.size(), 1u);
        EXPECT_EQ(leaves[i].sink.all[0].tag, i);
    }
    net.kill("hub");
    net.run_until_idle();
    for (const leaf& one : leaves)
        ASSERT_EQ(one.sink.down.size(), 1u);
}

}  // namespace
}  // namespace amalgam
