#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"

// Callers get accurate errors: who was lost and why, what did not run, the handler's own message.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

// ---- lost peers

TEST(lost_peer, keeps_its_address) {
    loop_pair two;
    std::string told_address;
    const auto told =
        two.client.on_peer_lost([&](const peer& who, status) { told_address = who.address(); });
    const peer there = two.there();
    two.net.run_until_idle();
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_EQ(told_address, "loop://server");
    EXPECT_EQ(there.address(), "loop://server");
    const failure why =
        two.in_client([&] { return two.client.procedure<int()>("f").on(there).try_call().why(); });
    EXPECT_EQ(why.what, errc::disconnected);
    EXPECT_NE(why.sentence.find("at loop://server: the peer is gone"), std::string::npos)
        << why.sentence;
}

TEST(foreign_peer, is_told_from_an_empty_one) {
    loop_pair two;
    engine other(two.net.port("other"));
    const auto call = other.procedure<int()>("f");
    const auto says = [&](const peer& to) {
        auto ended = other.spawn([&, to] { return call.on(to).try_call().sentence(); });
        two.net.run_until_idle();
        return ended.get();
    };
    EXPECT_EQ(says(two.there()),
              "call of \"f\" at a peer of another engine: the peer belongs to another engine; look "
              "up its address with the calling engine");
    EXPECT_EQ(says({}),
              "call of \"f\" at an empty peer: the peer is empty; get one from engine::lookup()");
}

TEST(lost_peer, that_called_us_keeps_its_address_too) {
    for (const char* transport : {"shm://", "tcp://127.0.0.1:0"}) {
        engine server(transport);
        event lost;
        std::string told_address;
        peer caller;
        server.define("f", [&] { caller = call_context::current().from(); });
        const auto told = server.on_peer_lost([&](const peer& who, status) {
            told_address = who.address();
            lost.set();
        });
        std::string came_from;
        {
            engine client(transport);
            client.procedure<void()>("f").on(server.address())();
            came_from = server.run([&] { return caller.address(); });
        }
        lost.wait();
        EXPECT_FALSE(told_address.empty());
        EXPECT_EQ(told_address, came_from);
    }
}

TEST(lost_peer, a_bound_procedure_that_retries_finds_who_was_restarted_at_its_address) {
    loop_pair two;
    const auto f =
        two.client.procedure<int()>("f", {.idempotent = true}).on(two.there()).retrying(3, 1ms);
    two.server.define("f", [] { return 1; });
    EXPECT_EQ(two.in_client([&] { return f(); }), 1);
    // Lost between two calls, and noticed long before the next.
    engine again{two.net.restart("server")};
    two.net.run_until_idle();
    again.define("f", [] { return 2; });
    EXPECT_EQ(two.in_client([&] { return f(); }), 2);
    EXPECT_EQ(two.in_client([&] { return f(); }), 2);
}

TEST(lost_peer, arguments_that_are_fetched_follow_to_the_restarted_server) {
    const std::string large(1 << 20, 'x');
    std::optional<engine> server;
    server.emplace("tcp://127.0.0.1:0");
    const std::string address = server->address();
    engine client("tcp://127.0.0.1:0");
    const auto length = client.procedure<std::size_t(std::string)>("length", {.idempotent = true})
                            .on(client.lookup(address))
                            .retrying(200, 1ms)
                            .within(60s);
    const auto serve = [&] { server->define("length", [](std::string s) { return s.size(); }); };
    serve();
    EXPECT_EQ(length(large), large.size());
    server.reset();
    server.emplace(address);
    serve();
    EXPECT_EQ(length(large), large.size());
}

TEST(lost_peer, a_post_to_it_throws_from_any_thread) {
    engine server("shm://"), client("shm://");
    event lost;
    const auto told = client.on_peer_lost([&](const peer&, status) { lost.set(); });
    server.define("f", [] {});
    const peer there = client.lookup(server.address());
    const auto f = client.procedure<void()>("f").on(there);
    f();
    server.stop();
    lost.wait();
    EXPECT_EQ(error_of([&] { f.post(); }).code(), errc::disconnected);
    const status inside = client.run([&] { return error_of([&] { f.post(); }).code(); });
    EXPECT_EQ(inside, errc::disconnected);
}

// ---- nobody listening

TEST(nobody_there, is_unreachable_also_long_after_the_lookup) {
    for (const char* transport : {"shm://", "tcp://127.0.0.1:0"}) {
        std::string address;
        {
            const engine gone(transport);
            address = gone.address();
        }
        engine client(transport);
        event lost;
        const auto told = client.on_peer_lost([&](const peer&, status) { lost.set(); });
        const peer there = client.lookup(address);
        lost.wait();
        const failure why = client.procedure<int()>("f").on(there).try_call().why();
        EXPECT_EQ(why.what, errc::unreachable);
        EXPECT_NE(why.sentence.find(address), std::string::npos) << why.sentence;
        EXPECT_NE(why.sentence.find("no answer at this address"), std::string::npos)
            << why.sentence;
        EXPECT_EQ(error_of([&] { client.procedure<void()>("f").on(there).post(); }).code(),
                  errc::unreachable);
    }
}

TEST(nobody_there, the_reason_is_told) {
    engine client("tcp://127.0.0.1:0");
    std::string address;
    {
        const engine gone("tcp://127.0.0.1:0");
        address = gone.address();
    }
    const auto sentence = [&](const std::string& where) {
        const failure why = client.procedure<int()>("f").on(where).try_call().why();
        EXPECT_EQ(why.what, errc::unreachable) << why.sentence;
        return why.sentence;
    };
    EXPECT_NE(sentence(address).find("Connection refused"), std::string::npos);
    // RFC 6761: .invalid never resolves. Resolvers differ in their message.
    const std::string unknown = sentence("tcp://no-such-host.invalid:7000");
    EXPECT_TRUE(unknown.find("Name or service not known") != std::string::npos ||
                unknown.find("Temporary failure in name resolution") != std::string::npos)
        << unknown;
}

TEST(one_way, that_its_peer_was_lost_before_it_left_is_counted) {
    loop_network net({.inline_bytes = 256, .link_bytes = 2048});
    engine server{net.port("server")};
    engine client{net.port("client")};
    int ran = 0;
    server.define("note", [&](std::string) { ++ran; });
    const auto note = client.procedure<void(std::string)>("note").on(server.address());
    const std::string text(200, 'x');
    note.post(text);
    net.run_until_idle();
    EXPECT_EQ(ran, 1);
    net.cut("server");
    const auto done = client.spawn([&] {
        for (int i = 0; i < 100; ++i)  // Some are in flight, the others wait for room.
            note.post(text);
    });
    std::thread([&] { note.post(text); }).join();
    net.run_until_idle();
    const auto told = counters_of(client);
    EXPECT_EQ(told.at("rpc.one_ways"), 102u);
    EXPECT_GE(told.at("rpc.one_ways_lost"), 101u - 2048 / 200);
    EXPECT_LE(told.at("rpc.one_ways_lost"), 101u);
    EXPECT_EQ(ran, 1);
}

TEST(call_where_nobody_can_park, ends_as_overloaded_when_too_many_wait_for_room) {
    loop_network net({.inline_bytes = 256, .link_bytes = 2048});
    engine server{net.port("server")};
    engine client{net.port("client"), {.max_queued = 8}};
    server.define("note", [](std::string) {});
    const auto note = client.procedure<void(std::string)>("note").on(server.address());
    const std::string text(200, 'x');
    net.cut("server");
    std::vector<future<void>> calls;
    int refused = 0, told = 0;
    for (int i = 0; i < 100; ++i) {
        note.call_then(
            [&](const result<void>& how) {
                ++told;
                refused += how.code() == errc::overloaded ? 1 : 0;
            },
            text);
        calls.push_back(note.start(text));
    }
    net.heal("server");
    net.run_until_idle();
    int ended_well = 0;
    for (future<void>& each : calls) {
        ASSERT_TRUE(each.ready());
        const status how = each.wait();
        EXPECT_TRUE(how.ok() || how == errc::overloaded) << to_string(how);
        how.ok() ? ++ended_well : ++refused;
    }
    EXPECT_EQ(told, 100);
    EXPECT_GT(ended_well, 0);
    EXPECT_GT(refused, 100);
}

// ---- a server that stops

TEST(stopping_server, answers_that_it_did_not_run_the_call) {
    std::atomic<int> runs{0};
    engine server("shm://", {.drain = 60s}), client("shm://");
    event begun, finish;
    server.define("wait", [&] {
        begun.set();
        finish.wait();
    });
    server.define("count", [&] { ++runs; });
    const peer at = client.lookup(server.address());
    auto under_way = client.procedure<void()>("wait").on(at).start();
    begun.wait();
    std::thread stopping([&] { server.stop(); });
    const auto count = client.procedure<void()>("count").on(at);
    result<void> how = count.try_call();
    while (how.ok())
        how = count.try_call();
    const int ran = runs;
    EXPECT_EQ(how.code(), errc::unavailable) << how.sentence();
    EXPECT_NE(how.sentence().find("did not run"), std::string::npos) << how.sentence();
    EXPECT_EQ(count.try_call().code(), errc::unavailable);
    EXPECT_EQ(runs, ran);
    finish.set();
    stopping.join();
    under_way.get();  // Calls already running at the stop ended well.
}

TEST(stopping_server, loses_no_call_that_may_be_made_again) {
    std::optional<engine> server;
    server.emplace("tcp://127.0.0.1:0");
    const std::string address = server->address();
    const auto serve = [&] { server->define("twice", [](int n) { return 2 * n; }); };
    serve();
    engine client("tcp://127.0.0.1:0");
    std::atomic<bool> done{false};
    std::atomic<int> calls{0};
    std::thread caller([&] {
        const auto twice = client.procedure<int(int)>("twice", {.idempotent = true})
                               .on(client.lookup(address))
                               .retrying(1000, 1ms)
                               .within(120s);
        while (!done) {
            const int n = ++calls;
            const result<int> answer = twice.try_call(n);
            // A server that listens before it defines has nothing to run yet.
            if (answer.code() == errc::not_found) continue;
            ASSERT_TRUE(answer.ok()) << answer.sentence();
            EXPECT_EQ(*answer, 2 * n);
        }
    });
    for (int restart = 0; restart < 5; ++restart) {
        const int before = calls;
        while (calls < before + 20)
            std::this_thread::yield();
        server.reset();
        server.emplace(address);
        serve();
    }
    done = true;
    caller.join();
}

// ---- a handler's own code

TEST(handler_code, is_the_one_that_the_handler_threw) {
    loop_pair two;
    two.server.define("row", [](int n) -> int {
        if (n == 0) throw error(errc::not_found, "no such row");
        if (n == 1) throw std::runtime_error("disk");
        if (n == 2) throw 7;
        return n;
    });
    const auto row = two.client.procedure<int(int)>("row").on(two.there());
    two.in_client([&] {
        const error why = error_of([&] { row(0); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_EQ(why.handler_code(), errc::not_found);
        EXPECT_NE(std::string(why.what()).find("no such row"), std::string::npos);
        EXPECT_EQ(row.try_call(0).code().handler_code(), errc::not_found);
        EXPECT_EQ(row.try_call(1).code().handler_code(), errc::handler_failed);
        EXPECT_EQ(row.try_call(2).code().handler_code(), errc::handler_failed);
        EXPECT_EQ(row.try_call(3).code().handler_code(), errc::ok);
        // Errors of the library are not the handler's.
        const auto none = two.client.procedure<int(int)>("none").on(two.there());
        EXPECT_EQ(none.try_call(0).code(), errc::not_found);
        EXPECT_EQ(none.try_call(0).code().handler_code(), errc::ok);
    });
}

TEST(handler_code, comes_from_a_responder_as_well) {
    loop_pair two;
    two.server.define("late", [](responder<int> answer, bool coded) {
        coded ? answer.fail(errc::denied, "not yours") : answer.fail("no");
    });
    const auto late = two.client.procedure<int(bool)>("late").on(two.there());
    two.in_client([&] {
        const result<int> coded = late.try_call(true);
        EXPECT_EQ(coded.code(), errc::handler_failed);
        EXPECT_EQ(coded.code().handler_code(), errc::denied);
        EXPECT_NE(coded.sentence().find("not yours"), std::string::npos);
        EXPECT_EQ(late.try_call(false).code().handler_code(), errc::handler_failed);
    });
}

// ---- the library's own procedures

struct password : interceptor {
    explicit password(bool sees_all = false) : all(sees_all) {}
    bool sees_library_procedures() const noexcept override { return all; }
    void calling(outgoing_call& call) override { called_for.emplace_back(call.procedure()); }
    void serving(call_context& call) override {
        if (!call.metadata("password")) throw error(errc::denied, "what is the password?");
    }
    bool all;
    std::vector<std::string> called_for;
};

TEST(library_procedures, pass_interceptors_by_unless_they_want_them) {
    loop_network net;
    auto here = std::make_shared<password>();
    engine closed{net.port("closed"), {.interceptors = {std::make_shared<password>()}}};
    engine shut{net.port("shut"), {.interceptors = {std::make_shared<password>(true)}}};
    engine client{net.port("client"), {.interceptors = {here}}};
    for (engine* each : {&closed, &shut})
        each->define("f", [] {});
    auto done = client.spawn([&] {
        const auto ping = client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
        const auto f = client.procedure<void()>("f");
        EXPECT_EQ(ping.on("loop://closed")(7), 7u);
        EXPECT_EQ(f.on("loop://closed").try_call().code(), errc::denied);
        EXPECT_EQ(ping.on("loop://shut").try_call(7).code(), errc::denied);
        EXPECT_EQ(f.on("loop://shut").try_call().code(), errc::denied);
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(here->called_for, (std::vector<std::string>{"f", "f"}));
}

TEST(library_procedures, are_not_for_users_to_define_or_undefine) {
    engine here("shm://");
    const error why = error_of([&] { here.define("amalgam.x", [] {}); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("my.x"), std::string::npos) << why.what();
    EXPECT_EQ(error_of([&] { here.define<void(int)>("amalgam.x", [](auto) {}); }).code(),
              errc::denied);
    EXPECT_EQ(error_of([&] { here.undefine("amalgam.ping"); }).code(), errc::denied);
    EXPECT_EQ(here.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping").on(here.address())(3),
              3u);
    here.define("amalgamated", [] {});  // Only the whole prefix is reserved.
    EXPECT_TRUE(here.undefine("amalgamated"));
    EXPECT_TRUE(is_library_procedure("amalgam.ping"));
    EXPECT_FALSE(is_library_procedure("amalgam"));
}

// ---- ends

TEST(stopped_engine, says_closed_to_everything) {
    engine here("shm://");
    const peer self = here.lookup(here.address());
    const auto f = here.procedure<void()>("f").on(self);
    here.stop();
    EXPECT_EQ(f.try_call().code(), errc::closed);
    EXPECT_EQ(error_of([&] { f.post(); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { here.run([] {}); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { (void)here.spawn([] {}); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { here.define("f", [] {}); }).code(), errc::closed);
    EXPECT_FALSE(here.undefine("f"));
}

TEST(stream_ends, a_deadline_does_not_say_that_no_answer_came) {
    loop_pair two;
    two.server.define("count", [](stream_writer<int>& out) {
        for (int i = 0;; ++i) {
            out(i);
            this_task::sleep_for(1ms);
        }
    });
    const auto count = two.client.procedure<streamed<int>()>("count").on(two.there()).within(10ms);
    const error why = two.in_client([&] {
        return error_of([&] {
            for (const int each : count())
                (void)each;
        });
    });
    EXPECT_EQ(why.code(), errc::timed_out);
    EXPECT_EQ(std::string(why.what()).find("no answer before"), std::string::npos) << why.what();
}

TEST(stream_ends, a_reader_that_left_is_no_failure_of_the_handler) {
    struct ends : interceptor {
        void served(call_context&, status how, clock::duration) noexcept override {
            seen.push_back(how.code);
        }
        std::vector<errc> seen;
    };
    loop_network net;
    auto seen = std::make_shared<ends>();
    engine server{net.port("server"), {.interceptors = {seen}}}, client{net.port("client")};
    server.define("count", [](stream_writer<int>& out) {
        for (int i = 0;; ++i)
            out(i);
    });
    auto done = client.spawn([&] {
        auto values = client.procedure<streamed<int>()>("count").on(server.address()).window(2)();
        for (const int each : values)
            if (each == 10) break;
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(seen->seen, (std::vector<errc>{errc::canceled}));
}

}  // namespace
}  // namespace amalgam
