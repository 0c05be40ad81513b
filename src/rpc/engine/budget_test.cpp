#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/wire/wire.hpp"

// Memory that peers together can occupy in an engine is bounded, and a correct peer is not
// disturbed by those that reach the bound.

namespace amalgam {
namespace {

using namespace std::literals;
using bytes = std::vector<std::byte>;

constexpr std::size_t result_bytes = 100'000;

/// Requests results and reads the replies, but never fetches or releases what they name.
struct hoarder final : message_sink {
    hoarder(loop_network& net, const std::string& name, const std::string& server,
            const port_options& how = {})
        : line(net.port(name, how)) {
        line->set_sink(this);
        there = line->lookup(server).value();
    }
    void ask(std::uint64_t procedure, detail::message_kind kind = detail::message_kind::request) {
        struct sent final : completion {
            sent()
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<sent*>(&c);
                  }) {}
        };
        bytes request(detail::request_bytes);
        detail::write_request(request.data(), {.kind = kind, .procedure = procedure});
        auto* const done = new sent;
        const const_bytes piece(request);
        const std::uint64_t id = kind == detail::message_kind::one_way ? 0 : ++asked;
        if (line->post_send(there, id, gather(&piece, 1), *done) != posted::pending) {
            delete done;
        }
    }
    void on_message(message& arrived) noexcept override {
        detail::parsed_message parsed;
        ASSERT_EQ(detail::parse(arrived.bytes(), parsed), nullptr);
        (parsed.what.ok() ? given : refused) += 1;
        if (parsed.what.ok()) return;
        EXPECT_EQ(parsed.what, errc::overloaded);
    }
    void on_peer_down(peer_id, status) noexcept override { lost = true; }

    std::unique_ptr<port> line;
    peer_id there;
    std::uint64_t asked = 0;
    int given = 0;
    int refused = 0;
    bool lost = false;
};

struct besieged {
    loop_network net;
    engine server{net.port("server"),
                  {.max_borrowed_bytes = 1'000'000, .max_borrowed_bytes_total = 3'000'000}};
    engine client{net.port("client")};
    std::uint64_t large = detail::procedure_id("large", signature_text<std::string()>());

    explicit besieged(handler how) {
        server.define("large", [] { return std::string(result_bytes, 'x'); }, {.run = how});
    }
    std::uint64_t borrowed() { return counters_of(server)["rpc.borrowed_bytes"]; }
    void expect_good_client_is_served() {
        auto call = client.procedure<std::string()>("large").on(server.address()).start();
        net.run_until_idle();
        EXPECT_EQ(call.get().size(), result_bytes);
    }
};

class borrowed_results : public testing::TestWithParam<handler> {};
INSTANTIATE_TEST_SUITE_P(ult, borrowed_results, testing::Values(handler::ult));
INSTANTIATE_TEST_SUITE_P(inline_, borrowed_results, testing::Values(handler::inline_));

TEST_P(borrowed_results, of_one_peer_that_does_not_fetch_them_are_bounded) {
    besieged all(GetParam());
    hoarder one(all.net, "hoarder", all.server.address());
    for (int i = 0; i < 50; ++i) {
        one.ask(all.large);
        all.net.run_until_idle();
        ASSERT_LE(all.borrowed(), 1'000'000u);
    }
    EXPECT_GE(one.given, 9);
    EXPECT_EQ(one.given + one.refused, 50);
    EXPECT_FALSE(one.lost);
    EXPECT_GT(counters_of(all.server)["rpc.overloaded"], 30u);
    all.expect_good_client_is_served();
    one.line->close(one.there);
    all.net.run_until_idle();
    EXPECT_EQ(all.borrowed(), 0u);
    EXPECT_EQ(all.server.core().loans().size().value(), 0u);
}

TEST_P(borrowed_results, of_all_peers_are_bounded_and_who_holds_most_makes_way) {
    besieged all(GetParam());
    std::vector<std::unique_ptr<hoarder>> many;
    for (int i = 0; i < 1'000; ++i) {
        many.push_back(std::make_unique<hoarder>(all.net, "hoarder" + std::to_string(i),
                                                 all.server.address()));
        for (int k = 0; k < 12; ++k)
            many.back()->ask(all.large);
        all.net.run_until_idle();
        ASSERT_LE(all.borrowed(), 3'000'000u);
        all.expect_good_client_is_served();
    }
    EXPECT_GT(counters_of(all.server)["rpc.taken_back"], 0u);
    EXPECT_EQ(counters_of(all.client)["rpc.peers_lost"], 0u);
    many.clear();
    all.net.run_until_idle();
    EXPECT_EQ(all.borrowed(), 0u);
}

TEST(one_way_calls, of_a_thousand_peers_are_bounded_told_and_shut_out_nobody_else) {
    constexpr std::size_t most = 4'000, peers = 1'000, rounds = 10;
    loop_network net;
    engine server{net.port("server"), {.max_running = 10, .max_one_ways = most}};
    engine client{net.port("client")};
    event gate;
    std::size_t runs = 0;
    server.define("wait", [&] {
        gate.wait();
        ++runs;
    });
    server.define("sum", [](int a, int b) { return a + b; });
    const std::uint64_t wait = detail::procedure_id("wait", signature_text<void()>());
    std::vector<std::unique_ptr<hoarder>> many;
    for (std::size_t i = 0; i < peers; ++i)
        many.push_back(
            std::make_unique<hoarder>(net, "poster" + std::to_string(i), server.address()));
    for (std::size_t round = 0; round < rounds; ++round) {
        for (auto& each : many)
            each->ask(wait, detail::message_kind::one_way);
        net.run_until_idle();
        ASSERT_LE(counters_of(server)["rpc.running_one_ways"], 2 * most);
        // One-way calls never cause calls with answers to be refused.
        auto call = client.procedure<int(int, int)>("sum").on(server.address()).start(2, 3);
        net.run_until_idle();
        EXPECT_EQ(call.get(), 5);
    }
    EXPECT_GE(counters_of(server)["rpc.running_one_ways"], most);
    client.procedure<void()>("wait").on(server.address()).post();
    net.run_until_idle();
    EXPECT_EQ(counters_of(client)["rpc.one_ways_refused"], 0u) << "it has less than its share";
    gate.set();
    net.run_until_idle();
    std::size_t told = 0;
    for (auto& each : many)
        told += static_cast<std::size_t>(each->refused);
    EXPECT_EQ(runs + told, peers * rounds + 1) << "nothing is lost without a word";
    EXPECT_EQ(counters_of(server)["rpc.running_one_ways"], 0u);
    EXPECT_EQ(counters_of(server)["rpc.running"], 0u);
}

TEST(one_way_calls, past_the_bound_are_counted_by_who_posted_them) {
    loop_network net;
    engine server{net.port("server"), {.max_one_ways = 10}};
    engine client{net.port("client")};
    event gate;
    int waited = 0, noted = 0;
    server.define("wait", [&] {
        gate.wait();
        ++waited;
    });
    server.define("note", [&] { ++noted; }, {.run = handler::inline_});
    auto done = client.spawn([&] {
        const peer to = client.lookup(server.address());
        for (int i = 0; i < 50; ++i) {
            client.procedure<void()>("wait").on(to).post();
            client.procedure<void()>("note").on(to).post();
        }
    });
    net.run_until_idle();
    done.get();
    gate.set();
    net.run_until_idle();
    EXPECT_EQ(noted, 50) << "inline handlers hold nothing";
    EXPECT_EQ(waited, 10);
    EXPECT_EQ(counters_of(client)["rpc.one_ways_refused"], 40u);
    EXPECT_EQ(counters_of(server)["rpc.overloaded"], 40u);
}

TEST(unread_answers, of_a_thousand_peers_are_bounded_and_who_leaves_most_makes_way) {
    constexpr std::size_t peers = 1'000, most = 500'000, asks = 20, answer = 1'000 + 4096 + 64;
    loop_network net{{.link_bytes = 4096}};
    engine server{net.port("server"), {.max_unread_bytes_total = most}};
    engine client{net.port("client")};
    server.define("page", [] { return std::string(1'000, 'p'); });
    const std::uint64_t page = detail::procedure_id("page", signature_text<std::string()>());
    std::vector<std::unique_ptr<hoarder>> many;
    for (std::size_t i = 0; i < peers; ++i) {
        many.push_back(std::make_unique<hoarder>(net, "deaf" + std::to_string(i), server.address(),
                                                 port_options{.max_queued_bytes = 1}));
        many.back()->line->set_sink(nullptr);  // It accepts one more message, then none.
        for (std::size_t k = 0; k < asks; ++k)
            many.back()->ask(page);
        net.run_for(1us);
        ASSERT_LE(counters_of(server)["rpc.unread_bytes"], most + asks * answer);
        auto call = client.procedure<std::string()>("page").on(server.address()).start();
        net.run_for(1ms);
        ASSERT_EQ(call.get().size(), 1'000u);
    }
    EXPECT_GT(counters_of(server)["rpc.cut_off"], 0u);
    EXPECT_EQ(counters_of(client)["rpc.peers_lost"], 0u);
    many.clear();
    net.run_until_idle();
    EXPECT_EQ(counters_of(server)["rpc.unread_bytes"], 0u);
    EXPECT_EQ(counters_of(server)["rpc.running"], 0u);
}

TEST(borrowed_result, always_fits_alone) {
    loop_network net;
    engine server{net.port("server"), {.max_borrowed_bytes = 1, .max_borrowed_bytes_total = 1}};
    engine client{net.port("client")};
    server.define("large", [] { return std::string(result_bytes, 'x'); });
    for (int i = 0; i < 3; ++i) {
        auto call = client.procedure<std::string()>("large").on(server.address()).start();
        net.run_until_idle();
        EXPECT_EQ(call.get().size(), result_bytes);
    }
}

/// One limit for values by every path: in the message, fetched, one-way, streamed, to oneself.
class value_limits : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(to_a_peer, value_limits, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(to_itself, value_limits, testing::Values(true));

TEST_P(value_limits, hold_for_arguments_results_and_values_of_streams_however_they_come) {
    for (const std::size_t size : {std::size_t{2'000}, std::size_t{300'000}}) {
        loop_network net;
        engine server{net.port("server"), {.max_values_bytes = 1'000}};
        engine other{net.port("client"), {.max_values_bytes = 1'000}};
        engine& client = GetParam() ? server : other;
        int runs = 0;
        server.define("take", [&runs](std::string) { ++runs; });
        server.define("give", [size] { return std::string(size, 'x'); });
        server.define("stream", [size](stream_writer<std::string>& out) {
            out(std::string(500, 'x'));
            out(std::string(size, 'x'));
        });
        auto done = client.spawn([&] {
            const peer to = client.lookup(server.address());
            auto take = client.procedure<void(std::string)>("take").on(to);
            take(std::string(500, 'x'));
            take.post(std::string(500, 'x'));
            EXPECT_EQ(take.try_call(std::string(size, 'x')).code(), errc::too_large);
            take.post(std::string(size, 'x'));
            EXPECT_EQ(client.procedure<std::string()>("give").on(to).try_call().code(),
                      errc::too_large);
            auto values = client.procedure<streamed<std::string>()>("stream").on(to)();
            EXPECT_EQ(values.next()->size(), 500u);
            EXPECT_EQ(error_of([&] { values.next(); }).code(), errc::too_large);
        });
        net.run_until_idle();
        done.get();
        EXPECT_EQ(runs, 2);
        for (engine* each : {&server, &other}) {
            EXPECT_EQ(each->core().server().running(), 0u);
            EXPECT_EQ(each->core().loans().size().value(), 0u);
        }
    }
}

}  // namespace
}  // namespace amalgam
