#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/wire/wire.hpp"

// Peers that violate the protocol: a bare port that sends anything.
namespace amalgam {
namespace {

using namespace std::literals;
using bytes = std::vector<std::byte>;

struct hostile final : message_sink {
    explicit hostile(loop_network& net, const port_options& how = {},
                     const std::string& name = "hostile")
        : line(net.port(name, how)) {
        line->set_sink(this);
    }

    void to(const std::string& address) { there = line->lookup(address).value(); }
    /// False: the link was full.
    bool send(std::uint64_t tag, const bytes& what) {
        struct sent final : completion {  // Large messages are read while they travel.
            explicit sent(const bytes& what)
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<sent*>(&c);
                  }),
                  kept(what) {}
            const bytes kept;
            const const_bytes piece{kept};
        };
        auto* done = new sent(what);
        const posted how = line->post_send(there, tag, gather(&done->piece, 1), *done);
        if (how != posted::pending) delete done;
        return how != posted::full;
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
    detail::write_request(all.data(), {.kind = kind, .procedure = procedure});
    for (char c : arguments)
        all.push_back(static_cast<std::byte>(c));
    return all;
}

/// One value, in the native encoding.
std::string encoded(const std::string& text) {
    body all;
    archive_writer(all, encoding::native, nullptr)(text);
    return std::string(detail::as_text(all.bytes()));
}

const std::string stream_of_int = signature_text<streamed<int>()>();

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

// It cancels nothing at its deadline, as one whose clock is a little behind.
TEST(hostile_peer, is_told_of_its_deadline_where_a_call_of_the_handler_saw_it_pass) {
    threatened t;
    event never;
    t.server.define("hang", [&] { never.wait(); });
    t.server.define("relay", [&] {
        t.server.procedure<void()>("hang").on(t.server.lookup(t.server.address()))();
    });
    bytes request(detail::request_bytes);
    detail::write_request(request.data(),
                          {.microseconds = 1000,
                           .procedure = detail::procedure_id("relay", signature_text<void()>())});
    t.enemy.send(5, request);
    t.net.run_until_idle();
    EXPECT_EQ(t.enemy.answer().what, errc::timed_out);
}

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
    later[0] = std::byte{0x31};
    t.enemy.send(5, later);
    t.net.run_until_idle();
    EXPECT_EQ(t.enemy.answer().what, errc::mismatch);
    EXPECT_EQ(t.runs, 0);
}

/// A server on a narrow network, and a peer that sends requests and reads only when told to.
struct flooded {
    static constexpr std::size_t most = 100;  // Small answers that may queue.
    loop_network net{{.link_bytes = 4096}};
    engine server{net.port("server"), {.max_unread_bytes = most * (4096 + 12)}};
    hostile enemy{net, {.max_queued_bytes = 1}};
    bytes ask = request_of(detail::procedure_id("echo", signature_text<int(int)>()), "1234");
    std::uint64_t asked = 0;
    std::size_t runs = 0;
    std::size_t most_queued = 0;

    explicit flooded(handler how) {
        server.define("echo",
                      [this](int a) {
                          ++runs;
                          return a;
                      },
                      {.run = how});
        enemy.to(server.address());
        enemy.line->set_sink(nullptr);  // It accepts one more message, then none.
    }
    /// Sends requests until the server's counter is above 0.
    void ask_until(const char* counter) {
        for (int i = 0; i < 5'000 && counters_of(server)[counter] == 0; ++i) {
            while (enemy.send(asked + 1, ask) && ++asked % 16 != 0)
                continue;
            net.run_for(1us);
            most_queued = std::max(most_queued, server.core().outbox().queued());
        }
        EXPECT_NE(counters_of(server)[counter], 0u);
    }
};

class flooding_peer : public testing::TestWithParam<handler> {};
INSTANTIATE_TEST_SUITE_P(ult, flooding_peer, testing::Values(handler::ult));
INSTANTIATE_TEST_SUITE_P(inline_, flooding_peer, testing::Values(handler::inline_));

TEST_P(flooding_peer, is_cut_off_when_it_never_reads_and_nobody_else_is_harmed) {
    flooded t(GetParam());
    engine client{t.net.port("client")};
    auto echo = client.procedure<int(int)>("echo").on(t.server.address());
    t.ask_until("rpc.overloaded");
    auto meanwhile = echo.start(6);
    t.ask_until("rpc.cut_off");
    EXPECT_LE(t.most_queued, 2 * flooded::most + 16);
    EXPECT_LE(t.runs, 3 * flooded::most);
    auto later = echo.start(7);
    t.net.run_until_idle();
    EXPECT_EQ(meanwhile.get(), 6);
    EXPECT_EQ(later.get(), 7);
    EXPECT_EQ(counters_of(t.server)["rpc.cut_off"], 1u);
    EXPECT_EQ(counters_of(t.server)["rpc.peers_lost"], 1u);
    EXPECT_EQ(t.server.core().outbox().queued(), 0u);
}

TEST_P(flooding_peer, is_served_again_once_it_reads_and_gets_every_answer) {
    flooded t(GetParam());
    t.ask_until("rpc.overloaded");
    t.enemy.line->set_sink(&t.enemy);
    t.net.run_until_idle();
    EXPECT_EQ(t.enemy.tags.size(), t.asked);
    EXPECT_EQ(t.enemy.answer().what, errc::overloaded);
    EXPECT_TRUE(t.enemy.send(++t.asked, t.ask));
    t.net.run_until_idle();
    EXPECT_EQ(t.enemy.tags.back(), t.asked);
    EXPECT_TRUE(t.enemy.answer().what.ok());
    EXPECT_EQ(counters_of(t.server)["rpc.cut_off"], 0u);
}

TEST_P(flooding_peer, gets_no_verdicts_while_it_does_not_read) {
    flooded t(GetParam());
    t.ask = request_of(99, detail::names_text("none", "()"), detail::message_kind::one_way);
    t.ask[1] = std::byte{1};
    for (int i = 0; i < 1000; ++i) {
        t.enemy.send(0, t.ask);
        t.net.run_for(1us);
        ASSERT_LE(t.server.core().outbox().queued(), flooded::most + 1);
    }
    EXPECT_GT(counters_of(t.server)["rpc.refused"], 500u);
}

TEST_P(flooding_peer, may_be_the_engine_itself_which_always_reads) {
    loop_network net;
    engine self{net.port("self"), {.max_unread_bytes = 1}};
    self.define("echo", [](int a) { return a; }, {.run = GetParam()});
    auto echo = self.procedure<int(int)>("echo").on(self.address());
    std::vector<future<int>> calls;
    auto all = self.spawn([&] {
        for (int i = 0; i < 5000; ++i)
            calls.push_back(echo.start(i));
    });
    net.run_until_idle();
    all.get();
    for (std::size_t i = 0; i < calls.size(); ++i)
        EXPECT_EQ(calls[i].get(), static_cast<int>(i));
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
    // Every id a first call could have.
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
            named = server.answer().named();
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

TEST(hostile_peer, that_sends_on_before_its_large_value_was_fetched_ends_the_stream) {
    for (const auto kind : {detail::message_kind::item, detail::message_kind::reply}) {
        loop_network net;
        hostile enemy(net);
        engine client{net.port("client")};
        bytes memory(100'000);
        const region shown = enemy.line->open_region(mutable_bytes(memory), access::read).value();
        auto values = client.procedure<streamed<std::string>()>("f").on(enemy.line->address())();
        net.run_until_idle();
        bytes extras;
        detail::add_rendezvous(extras, shown.key(), memory, false);
        const bytes loan{std::byte{1}, {}, {}, {}, {}, {}, {}, std::byte{2}};
        detail::add_extra(extras, detail::extra::loans, loan);
        bytes large(detail::reply_bytes), next(detail::reply_bytes);
        detail::write_reply(large.data(), {}, detail::wire_flag::extras,
                            detail::message_kind::item);
        large.insert(large.end(), extras.begin(), extras.end());
        detail::write_reply(next.data(), {}, 0, kind);
        if (kind == detail::message_kind::item) next.resize(next.size() + 4);
        const std::uint64_t id = enemy.tags.back();
        enemy.send(id, large);
        enemy.send(id, next);
        net.run_until_idle();
        auto reader = client.spawn([&] { values.next(); });
        net.run_until_idle();
        EXPECT_EQ(reader.wait().code, errc::mismatch);
        std::size_t released = 0;
        for (const bytes& each : enemy.got) {
            detail::parsed_message parsed;
            ASSERT_EQ(detail::parse(each, parsed), nullptr);
            if (parsed.kind != detail::message_kind::release) continue;
            released += parsed.body.size() / 8;
            EXPECT_TRUE(std::equal(loan.begin(), loan.end(), parsed.body.begin()));
        }
        EXPECT_EQ(released, 1u);
        EXPECT_EQ(client.core().transfers().pending(), 0u);
    }
}

/// Ids released to the hostile peer.
std::vector<std::uint64_t> released_to(const hostile& enemy) {
    std::vector<std::uint64_t> ids;
    for (const bytes& each : enemy.got) {
        detail::parsed_message parsed;
        EXPECT_EQ(detail::parse(each, parsed), nullptr);
        if (parsed.kind != detail::message_kind::release) continue;
        for (std::size_t at = 0; at + 8 <= parsed.body.size(); at += 8)
            ids.push_back(load_le<std::uint64_t>(parsed.body.data() + at));
    }
    return ids;
}

TEST(hostile_peer,
     a_value_without_the_checksum_that_was_asked_for_is_damaged_and_its_loans_released) {
    loop_network net;
    hostile enemy(net);
    engine client{net.port("client"), {.checksum = true}};
    future<int> call = client.procedure<int()>("f").on(enemy.line->address()).start();
    net.run_until_idle();
    bytes extras, loan(8);
    store_le(loan.data(), std::uint64_t{4711});
    detail::add_extra(extras, detail::extra::loans, loan);
    bytes reply(detail::reply_bytes);
    detail::write_reply(reply.data(), {}, detail::wire_flag::extras);
    reply.insert(reply.end(), extras.begin(), extras.end());
    reply.resize(reply.size() + 4);
    enemy.send(enemy.tags.back(), reply);
    net.run_until_idle();
    EXPECT_EQ(call.wait(), errc::corrupt);
    EXPECT_EQ(released_to(enemy), std::vector<std::uint64_t>{4711});
    EXPECT_EQ(counters_of(client)["rpc.late_replies"], 1u);
}

TEST(hostile_peer, an_answer_that_cannot_be_read_ends_its_call) {
    loop_network net;
    hostile enemy(net);
    engine client{net.port("client")};
    for (const std::size_t changed : {0, 1, 2, 3}) {  // Version, status, flags, reserved.
        future<int> call = client.procedure<int()>("f").on(enemy.line->address()).start();
        net.run_until_idle();
        const std::uint64_t id = enemy.tags.back();
        const std::size_t asked = enemy.got.size();
        bytes reply(detail::reply_bytes);
        detail::write_reply(reply.data(), {errc::denied});
        reply[changed] ^= std::byte{0xc0};
        enemy.send(id, reply);
        net.run_until_idle();
        ASSERT_TRUE(call.ready()) << changed;
        EXPECT_EQ(call.wait(), errc::mismatch) << changed;
        for (std::size_t i = asked; i < enemy.got.size(); ++i) {  // A cancel, and no answer.
            EXPECT_EQ(enemy.got[i].size(), detail::cancel_bytes) << changed;
        }
    }
    EXPECT_EQ(counters_of(client)["rpc.malformed"], 4u);
}

TEST(hostile_peer, that_sends_more_values_than_were_asked_for_ends_the_stream) {
    loop_network net;
    hostile enemy(net);
    engine client{net.port("client")};
    auto values = client.procedure<streamed<int>()>("f").on(enemy.line->address()).window(2)();
    net.run_until_idle();
    const std::uint64_t id = enemy.tags.back();
    bytes item(detail::reply_bytes + 4);
    detail::write_reply(item.data(), {}, 0, detail::message_kind::item);
    for (int i = 0; i < 3; ++i)
        enemy.send(id, item);
    net.run_until_idle();
    auto reader = client.spawn([&] {
        int read = 0;
        while (read < 2 && values.next())
            ++read;
        EXPECT_EQ(read, 2);
        values.next();
    });
    net.run_until_idle();
    EXPECT_EQ(reader.wait(), errc::mismatch);
    EXPECT_EQ(client.core().caller().pending(), 0u);
}

const std::uint64_t opens_values = detail::procedure_id("amalgam.stream", "stream<values>(u64)");

/// A call of "amalgam.stream" with this window.
bytes opening_of(std::uint64_t stream, std::uint32_t window) {
    bytes items(8), extras, number(8);
    store_le(items.data(), window);
    store_le(number.data(), stream);
    detail::add_extra(extras, detail::extra::window, items);
    bytes all = request_of(opens_values, {});
    all[1] = std::byte{detail::wire_flag::extras};
    all.insert(all.end(), extras.begin(), extras.end());
    all.insert(all.end(), number.begin(), number.end());
    return all;
}

TEST(hostile_peer, that_reads_streams_it_was_not_given_is_refused) {
    threatened t;
    for (const std::uint32_t window : {0u, 64u, 0xffffffffu}) {
        t.enemy.send(5, opening_of(123, window));
        t.net.run_until_idle();
        EXPECT_EQ(t.enemy.answer().what.code, window == 0 ? errc::mismatch : errc::handler_failed);
        if (window != 0) {
            EXPECT_EQ(t.enemy.answer().what.handler_code(), errc::not_found);
        }
    }
    EXPECT_EQ(counters_of(t.server)["rpc.running"], 0u);
}

TEST(hostile_peer, that_reads_a_stream_twice_gets_it_once_and_only_as_far_as_it_asked) {
    loop_network net;
    hostile enemy(net);
    engine client{net.port("client")};
    auto up = client.procedure<int(streaming<int>)>("f").on(enemy.line->address()).open();
    int sent = 0;
    auto sender = client.spawn([&] {
        while (up.send(sent))
            ++sent;
    });
    net.run_until_idle();
    const std::uint64_t call = enemy.tags.back();
    const auto stream = load_le<std::uint64_t>(enemy.answer().body.data());
    enemy.send(5, opening_of(stream, 3));
    net.run_until_idle();
    EXPECT_EQ(sent, 3);
    enemy.send(6, opening_of(stream, 3));
    net.run_until_idle();
    EXPECT_EQ(enemy.tags.back(), 6u);
    EXPECT_EQ(enemy.answer().what.handler_code(), errc::not_found);
    // Credit beyond all bounds, and a result while it should still read.
    bytes credit(detail::credit_bytes), reply(detail::reply_bytes);
    detail::write_credit(credit.data(), 0xffffffffu);
    detail::write_reply(reply.data(), {});
    reply.resize(reply.size() + 4);
    for (int i = 0; i < 3; ++i)
        enemy.send(5, credit);
    enemy.send(call, reply);
    net.run_until_idle();
    EXPECT_TRUE(sender.ready());
    EXPECT_EQ(up.result().wait(), errc::ok);
    EXPECT_FALSE(client.core().server().running());
    enemy.send(7, opening_of(stream, 3));
    net.run_until_idle();
    EXPECT_EQ(enemy.answer().what.handler_code(), errc::not_found);
}

TEST(hostile_peer, that_never_fetches_a_value_holds_its_sender_no_longer_than_the_call) {
    loop_network net;
    hostile enemy(net);
    engine client{net.port("client")};
    auto up = client.procedure<int(streaming<std::string>)>("f").on(enemy.line->address()).open();
    auto sender = client.spawn([&] { return up.send(std::string(200'000, 'l')); });
    net.run_until_idle();
    enemy.send(5, opening_of(load_le<std::uint64_t>(enemy.answer().body.data()), 3));
    net.run_until_idle();
    EXPECT_FALSE(sender.ready());
    up.cancel();
    net.run_until_idle();
    EXPECT_FALSE(sender.get());
    EXPECT_EQ(up.result().wait(), errc::canceled);
    enemy.line->close(enemy.there);
    net.run_until_idle();
    EXPECT_EQ(client.core().loans().size().value(), 0u);
}

/// A server whose handler reads from the hostile peer.
struct read_from {
    loop_network net;
    engine server;
    hostile enemy{net};
    std::string why;
    event go_on;

    explicit read_from(std::size_t max_reader_bytes)
        : server(net.port("server"), {.max_reader_bytes = max_reader_bytes}) {
        server.define("read", [this](stream_reader<std::string>& in) {
            in.window(4);
            try {
                while (in.next())
                    go_on.wait();
            } catch (const error& failed) {
                why = failed.what();
            }
        });
        enemy.to(server.address());
        const std::uint64_t read =
            detail::procedure_id("read", signature_text<void(streaming<std::string>)>());
        enemy.send(77, request_of(read, "12345678"));
        net.run_until_idle();
        reader = enemy.tags.back();
        EXPECT_EQ(enemy.answer().kind, detail::message_kind::request);
    }
    void send_value(std::size_t length) {
        body value;
        archive_writer{value}(std::string(length, 'v'));
        bytes item(detail::reply_bytes);
        detail::write_reply(item.data(), {}, 0, detail::message_kind::item);
        item.insert(item.end(), value.bytes().begin(), value.bytes().end());
        enemy.send(reader, item);
        net.run_until_idle();
    }
    void expect_ended(std::string_view sentence) {
        go_on.set();
        net.run_until_idle();
        EXPECT_NE(why.find(sentence), std::string::npos) << why;
        EXPECT_EQ(counters_of(server)["rpc.running"], 0u);
        EXPECT_EQ(counters_of(server)["rpc.reader_bytes"], 0u);
    }
    std::uint64_t reader = 0;
};

TEST(hostile_peer, that_sends_more_values_than_a_handler_granted_ends_its_reader) {
    read_from peer(1'000'000'000);
    for (int i = 0; i < 6; ++i)
        peer.send_value(3);
    peer.expect_ended("more values than requested");
}

TEST(hostile_peer, that_sends_larger_values_than_the_engine_holds_ends_its_reader) {
    read_from peer(400'000);
    EXPECT_LE(counters_of(peer.server)["rpc.reader_bytes"], 400'000u);
    peer.send_value(60'000);
    peer.send_value(190'000);
    peer.expect_ended("max_reader_bytes");
}

TEST(hostile_peer, that_posts_to_a_procedure_with_a_reader_runs_nothing) {
    loop_network net;
    engine server{net.port("server")};
    bool ran = false;
    server.define("read", [&](stream_reader<int>&) { ran = true; });
    hostile enemy(net);
    enemy.to(server.address());
    enemy.send(0, request_of(detail::procedure_id("read", "void(stream<i32>)"), "12345678",
                             detail::message_kind::one_way));
    net.run_until_idle();
    EXPECT_EQ(enemy.answer().kind, detail::message_kind::verdict);
    EXPECT_EQ(enemy.answer().what, errc::mismatch);
    EXPECT_FALSE(ran);
}

TEST(hostile_peer, that_posts_to_a_procedure_with_a_stream_leaves_no_handler_waiting) {
    loop_network net;
    engine server{net.port("server")};
    server.define("numbers", [](stream_writer<int>& out) { out(1); });
    auto enemy = std::make_unique<hostile>(net);
    enemy->to(server.address());
    bytes window(8), post = request_of(detail::procedure_id("numbers", stream_of_int), {},
                                       detail::message_kind::one_way);
    bytes extras;
    detail::add_extra(extras, detail::extra::window, window);  // And no credit, ever.
    post[1] = std::byte{detail::wire_flag::extras};
    post.insert(post.end(), extras.begin(), extras.end());
    enemy->send(0, post);
    net.run_until_idle();
    EXPECT_EQ(enemy->answer().kind, detail::message_kind::verdict);
    EXPECT_EQ(enemy->answer().what, errc::mismatch);
    enemy.reset();
    net.run_until_idle();
    EXPECT_EQ(counters_of(server)["rpc.running"], 0u);
}

TEST(hostile_peer, whose_ways_come_and_go_is_not_remembered_by_all_of_them) {
    loop_network net;
    engine server{net.port("server")};
    const auto introduced = [&](hostile& by, std::uint64_t ticket) {
        by.to(server.address());
        bytes ask = request_of(
            detail::procedure_id("amalgam.introduce",
                                 signature_text<detail::introduction(detail::introduction)>()),
            {});
        ask.resize(detail::request_bytes + 30);
        store_le(ask.data() + detail::request_bytes, std::uint64_t{4711});
        store_le(ask.data() + detail::request_bytes + 14, ticket);
        by.send(1, ask);
        net.run_until_idle();
        EXPECT_TRUE(by.answer().what.ok());
        return load_le<std::uint64_t>(by.answer().body.data() + 14);
    };
    hostile stays(net);
    const std::uint64_t ticket = introduced(stays, 0);
    for (int i = 0; i < 200; ++i) {
        hostile passes(net, {}, "way" + std::to_string(i));
        introduced(passes, ticket);
    }
    net.run_until_idle();
    const auto engine = server.core().routes().by_ticket(ticket);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->routes.size(), 1u);
    EXPECT_LE(engine->lost.size(), detail::limits::max_lost_names);
}

TEST(hostile_peer, cannot_fill_the_log_with_verdicts) {
    std::size_t lines = 0, longest = 0;
    default_logger().set_sink([&](const log_record& one) {
        ++lines;
        for (const log_field& each : one.fields)
            longest = std::max(longest, each.text().size());
    });
    loop_network net{{.inline_bytes = 1 << 20}};
    engine client{net.port("client")};
    hostile enemy(net);
    enemy.to(client.address());
    [[maybe_unused]] const auto known = client.procedure<void()>("f");
    bytes verdict(detail::verdict_bytes + 100'000);
    detail::write_verdict(verdict.data(), {errc::mismatch},
                          detail::procedure_id("f", signature_text<void()>()));
    constexpr std::size_t many = 1000;
    for (std::size_t i = 0; i < many; ++i) {
        enemy.send(0, verdict);
        net.run_until_idle();
    }
    default_logger().set_sink({});
    EXPECT_EQ(counters_of(client)["rpc.one_ways_refused"], many);
    EXPECT_LT(lines, many / 2);
    EXPECT_LE(longest, detail::limits::max_sentence_bytes);
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

// An inline handler of numbers reads them where they lie: see flat_values.hpp.
TEST(hostile_peer, an_inline_handler_runs_for_arguments_of_the_right_size_only) {
    threatened t;
    int runs = 0;
    t.server.define("add",
                    [&runs](std::int32_t a, std::uint8_t b) {
                        ++runs;
                        return a + b;
                    },
                    {.run = handler::inline_});
    const std::uint64_t add = detail::procedure_id("add", "i32(i32,u8)");
    for (const std::string_view arguments : {"", "1234", "123456", "123456789"}) {
        t.enemy.send(5, request_of(add, arguments));
        t.net.run_until_idle();
        EXPECT_EQ(t.enemy.answer().what, errc::mismatch);
        t.enemy.send(0, request_of(add, arguments, detail::message_kind::one_way));
        t.net.run_until_idle();
    }
    EXPECT_EQ(runs, 0);
    t.enemy.send(6, request_of(add, "12345"));
    t.net.run_until_idle();
    EXPECT_TRUE(t.enemy.answer().what.ok());
    EXPECT_EQ(t.enemy.tags.back(), 6u);
    EXPECT_EQ(runs, 1);
    const std::size_t answers = t.enemy.got.size();
    t.enemy.send(0, request_of(add, "12345", detail::message_kind::one_way));
    t.net.run_until_idle();
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(t.enemy.got.size(), answers);  // A one-way call has none.
    EXPECT_EQ(counters_of(t.server)["rpc.running"], 0u);
}

// Some calls of a procedure are measured, and take another way than the rest.
constexpr int enough_for_both_ways = 8;

TEST(hostile_peer, a_one_way_call_has_no_answer_wherever_its_handler_runs) {
    threatened t;
    int runs = 0;
    const std::string text = encoded("abcd");
    for (const handler how : {handler::ult, handler::inline_}) {
        t.server.define("number", [&](int a) { return ++runs, a; }, {.run = how});
        t.server.define("text", [&](std::string a) { return ++runs, a; }, {.run = how});
        for (const auto kind : {detail::message_kind::request, detail::message_kind::one_way}) {
            t.enemy.got.clear();
            for (int i = 0; i < enough_for_both_ways; ++i) {
                t.enemy.send(7,
                             request_of(detail::procedure_id("number", signature_text<int(int)>()),
                                        "1234", kind));
                t.enemy.send(7, request_of(detail::procedure_id(
                                               "text", signature_text<std::string(std::string)>()),
                                           text, kind));
                t.net.run_until_idle();
            }
            const bool answered = kind == detail::message_kind::request;
            EXPECT_EQ(t.enemy.got.size(), answered ? 2u * enough_for_both_ways : 0u);
        }
        t.server.undefine("number");
        t.server.undefine("text");
    }
    EXPECT_EQ(runs, 8 * enough_for_both_ways);
}

// The state of a caller that is lost while its inline handler runs may be the next peer's by the
// time of the answer.
TEST(hostile_peer, an_inline_answer_does_not_reach_who_has_the_slot_of_a_lost_caller) {
    threatened t;
    hostile other(t.net, {}, "other");
    other.to(t.server.address());
    detail::engine_core& core = t.server.core();
    peer next;
    t.server.define("next", [&] { next = call_context::current().from(); },
                    {.run = handler::inline_});
    const auto lose_caller = [&] {
        const peer caller = call_context::current().from();
        core.on_peer_down(0, next.id(), {errc::disconnected});
        core.on_peer_down(0, caller.id(), {errc::disconnected});
        detail::peer_state& fresh = core.peers().meet(0, next.id());
        EXPECT_EQ(fresh.name.slot(), caller.slot());
        core.outbox().heard_from(fresh);
    };
    t.server.define("number", [&](int a) { return lose_caller(), a; }, {.run = handler::inline_});
    t.server.define("text", [&](std::string a) { return lose_caller(), a; },
                    {.run = handler::inline_});
    const bytes number =
        request_of(detail::procedure_id("number", signature_text<int(int)>()), "1234");
    const bytes words = request_of(
        detail::procedure_id("text", signature_text<std::string(std::string)>()), encoded("abcd"));
    for (int i = 0; i < 2 * enough_for_both_ways; ++i) {
        other.send(1, request_of(detail::procedure_id("next", "void()"), ""));
        t.net.run_until_idle();
        ASSERT_TRUE(next);
        other.got.clear();
        t.enemy.send(7, i % 2 == 0 ? number : words);
        t.net.run_until_idle();
        EXPECT_TRUE(other.got.empty());
        EXPECT_TRUE(t.enemy.got.empty());
        EXPECT_EQ(counters_of(t.server)["rpc.running"], 0u);
    }
}

TEST(hostile_peer, a_result_of_another_size_than_the_number_expected_is_a_mismatch) {
    loop_network net;
    hostile enemy(net, {}, "liar");
    engine client{net.port("client")};
    const peer there = client.lookup(enemy.line->address());
    const auto answered = [&](auto call, std::size_t result_bytes) {
        auto done = client.spawn([&] { return call.start().wait().code; });
        net.run_until_idle();
        bytes reply(detail::reply_bytes + result_bytes, std::byte{1});
        store_le(reply.data(), detail::plain_head::of_reply(false));
        enemy.send(enemy.tags.back(), reply);
        net.run_until_idle();
        return done.get();
    };
    for (int i = 0; i < 2; ++i) {  // The second request carries no name.
        const auto number = client.procedure<std::int32_t()>("number").on(there);
        for (const std::size_t wrong : {0, 3, 5, 8})
            EXPECT_EQ(answered(number, wrong), errc::mismatch) << wrong;
        EXPECT_EQ(answered(number, 4), errc::ok);
        const auto nothing = client.procedure<void()>("nothing").on(there);
        EXPECT_EQ(answered(nothing, 1), errc::mismatch);
        EXPECT_EQ(answered(nothing, 0), errc::ok);
    }
}

}  // namespace
}  // namespace amalgam
