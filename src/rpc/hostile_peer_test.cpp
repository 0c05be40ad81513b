#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "rpc/loop_pair.hpp"
#include "rpc/wire.hpp"

// Peers that do not keep to the protocol: a bare port that sends what it likes.
namespace amalgam {
namespace {

using namespace std::literals;
using bytes = std::vector<std::byte>;

struct hostile final : message_sink {
    explicit hostile(loop_network& net) : line(net.port("hostile")) { line->set_sink(this); }

    void to(const std::string& address) { there = line->lookup(address).value(); }
    void send(std::uint64_t tag, const bytes& what) {
        struct sent final : completion {
            sent()
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<sent*>(&c);
                  }) {}
        };
        auto* done = new sent;
        const const_bytes piece(what);
        if (line->post_send(there, tag, gather(&piece, 1), *done) != posted::pending) delete done;
    }
    void on_message(message& arrived) noexcept override {
        there = arrived.from();
        tags.push_back(arrived.tag());
        got.emplace_back(arrived.bytes().begin(), arrived.bytes().end());
    }
    detail::parsed_message answer() const {
        detail::parsed_message parsed;
        EXPECT_FALSE(got.empty());
        EXPECT_EQ(detail::parse(got.back(), parsed), nullptr);
        return parsed;
    }

    std::unique_ptr<port> line;
    peer_id there;
    std::vector<std::uint64_t> tags;
    std::vector<bytes> got;
};

bytes request_of(std::uint64_t procedure, std::string_view arguments,
                 detail::message_kind kind = detail::message_kind::request) {
    bytes all(detail::request_bytes);
    detail::write_request(all.data(), kind, false, 0, procedure);
    for (char c : arguments)
        all.push_back(static_cast<std::byte>(c));
    return all;
}

struct threatened {
    loop_network net;
    engine server{net.port("server")};
    hostile enemy{net};
    std::uint64_t sum = detail::procedure_id("sum", "i32(i32,i32)");
    int runs = 0;

    threatened() {
        server.define("sum", [this](int a, int b) {
            ++runs;
            return a + b;
        });
        enemy.to(server.address());
    }
};

TEST(hostile_peer, arguments_that_do_not_fit_are_a_mismatch_and_run_nothing) {
    threatened t;
    for (const std::string_view arguments : {"", "1234567", "123456789", "1234567890123456"}) {
        t.enemy.send(77, request_of(t.sum, arguments));
        t.net.run_until_idle();
        EXPECT_EQ(t.enemy.tags.back(), 77u);
        EXPECT_EQ(t.enemy.answer().what, errc::mismatch);
    }
    EXPECT_EQ(t.runs, 0);
    t.enemy.send(78, request_of(t.sum, "12345678"));
    t.net.run_until_idle();
    EXPECT_TRUE(t.enemy.answer().what.ok());
    EXPECT_EQ(t.runs, 1);
}

TEST(hostile_peer, garbage_is_counted_and_the_server_serves_on) {
    threatened t;
    seeded_random random(3);
    for (int i = 0; i < 2000; ++i) {
        bytes noise(random.below(60));
        for (std::byte& each : noise)
            each = static_cast<std::byte>(random());
        if (!noise.empty() && random.chance(0.7)) {
            noise[0] = static_cast<std::byte>(0x10 | random.below(8));
        }
        t.enemy.send(random(), noise);
        if (i % 50 == 0) t.net.run_until_idle();
    }
    t.net.run_until_idle();
    EXPECT_GT(counters_of(t.server)["rpc.malformed"], 100u);
    EXPECT_EQ(t.runs, 0);
    t.enemy.send(1, request_of(t.sum, "12345678"));
    t.net.run_until_idle();
    EXPECT_TRUE(t.enemy.answer().what.ok());
}

TEST(hostile_peer, a_request_of_another_version_is_told_so) {
    threatened t;
    bytes later = request_of(t.sum, "12345678");
    later[0] = std::byte{0x21};
    t.enemy.send(5, later);
    t.net.run_until_idle();
    EXPECT_EQ(t.enemy.answer().what, errc::mismatch);
    EXPECT_EQ(t.runs, 0);
}

TEST(hostile_peer, only_the_peer_that_was_called_can_end_a_call) {
    loop_network net;
    engine server{net.port("server")}, client{net.port("client")};
    server.define("slow", [] {
        this_task::sleep_for(50ms);
        return 1;
    });
    hostile enemy(net);
    enemy.to(client.address());
    future<int> call = client.procedure<int()>("slow").on(server.address()).start();
    net.run_for(10ms);
    // Every id that a first call could have.
    bytes reply(detail::reply_bytes + 4);
    detail::write_reply(reply.data(), {});
    for (std::uint64_t generation = 0; generation < 4; ++generation) {
        for (std::uint64_t slot = 0; slot < 4; ++slot)
            enemy.send(generation << 32 | slot, reply);
    }
    net.run_for(10ms);
    EXPECT_FALSE(call.ready());
    net.run_until_idle();
    EXPECT_EQ(call.get(), 1);
    EXPECT_EQ(counters_of(client)["rpc.late_replies"], 16u);
}

TEST(bare_peer, names_travel_until_an_answer_shows_that_they_were_compared) {
    loop_network net;
    engine client{net.port("client")};
    hostile server(net);
    const auto named_after = [&](errc answer, const std::string& procedure) {
        auto call = client.procedure<void()>(procedure).on("loop://hostile");
        bool named = false;
        for (int i = 0; i < 2; ++i) {
            future<void> later = call.start();
            net.run_until_idle();
            named = server.answer().named;
            bytes reply(detail::reply_bytes);
            detail::write_reply(reply.data(), {answer});
            server.send(server.tags.back(), reply);
            net.run_until_idle();
            EXPECT_EQ(later.wait().code, answer);
        }
        return named;
    };
    for (const errc code :
         {errc::ok, errc::handler_failed, errc::timed_out, errc::too_large, errc::overloaded})
        EXPECT_FALSE(named_after(code, std::string("has ") += name(code))) << name(code);
    for (const errc code : {errc::not_found, errc::mismatch, errc::closed, errc::no_memory})
        EXPECT_TRUE(named_after(code, std::string("has not ") += name(code))) << name(code);
}

TEST(hostile_peer, a_result_that_does_not_fit_is_a_mismatch) {
    loop_network net;
    engine client{net.port("client")};
    hostile enemy(net);
    auto call = client.procedure<std::string()>("f").on("loop://hostile");
    for (const std::string_view result : {""sv, "\1\0\0"sv, "\xff\xff\xff\xff"sv, "\0\0\0\0x"sv}) {
        future<std::string> later = call.start();
        net.run_until_idle();
        bytes reply(detail::reply_bytes);
        detail::write_reply(reply.data(), {});
        for (char c : result)
            reply.push_back(static_cast<std::byte>(c));
        enemy.send(enemy.tags.back(), reply);
        net.run_until_idle();
        EXPECT_EQ(later.wait().code, errc::mismatch);
    }
}

TEST(hostile_peer, cancels_and_verdicts_about_nothing_are_ignored) {
    threatened t;
    bytes all(detail::verdict_bytes);
    detail::write_verdict(all.data(), {errc::mismatch}, 12345);
    t.enemy.send(9, all);
    detail::write_cancel(all.data());
    all.resize(detail::cancel_bytes);
    t.enemy.send(9, all);
    t.net.run_until_idle();
    EXPECT_TRUE(t.enemy.got.empty());
    EXPECT_EQ(counters_of(t.server)["rpc.malformed"], 0u);
}

}  // namespace
}  // namespace amalgam
