#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(engine, a_name_is_defined_once_and_must_have_a_length) {
    loop_pair two;
    two.server.define("f", [](int a) { return a; });
    const error taken = error_of([&] { two.server.define("f", [](double a) { return a; }); });
    EXPECT_EQ(taken.code(), errc::invalid);
    EXPECT_NE(std::string(taken.what()).find("i32(i32)"), std::string::npos);
    EXPECT_EQ(error_of([&] { two.server.define("", [] {}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { two.server.define(std::string(256, 'n'), [] {}); }).code(),
              errc::invalid);
    EXPECT_EQ(error_of([&] { two.client.procedure<void()>(""); }).code(), errc::invalid);
}

TEST(engine, what_it_has_one_of_is_said_to_be_there_only_where_it_is) {
    loop_pair two;
    const auto define_as = [&](const detail::library_name name, auto handler) {
        return error_of([&] {
            detail::define_first(two.server.core(), name.text, "a thing",
                                 [&] { two.server.define(name, handler); });
        });
    };
    const detail::library_name fine{"amalgam.thing"};
    detail::define_first(two.server.core(), fine.text, "a thing",
                         [&] { two.server.define(fine, [] {}); });
    const error there = define_as(fine, [] {});
    EXPECT_EQ(there.code(), errc::invalid);
    EXPECT_STREQ(there.what(),
                 "this engine already has a thing, expected at most one per engine: use that one, "
                 "or create another engine");
    const std::string too_long(256, 'n');
    const error other = define_as(detail::library_name{too_long}, [] {});
    EXPECT_EQ(other.code(), errc::invalid);
    EXPECT_STREQ(other.what(),
                 "the procedure name has 256 bytes, expected 1 to 255; example: \"sum\"");
}

TEST(engine, an_address_of_a_transport_it_has_no_port_for_is_unsupported) {
    loop_pair two;
    const error other = error_of([&] { two.client.lookup("tcp://127.0.0.1:1"); });
    EXPECT_EQ(other.code(), errc::unsupported);
    EXPECT_NE(std::string(other.what()).find("speaks tcp, only loop"), std::string::npos);
    EXPECT_EQ(error_of([&] { two.client.lookup("no address"); }).code(), errc::invalid);
    engine of_two({"shm://", "loop://of_two"});
    const error third = error_of([&] { of_two.lookup("tcp://127.0.0.1:1"); });
    EXPECT_STREQ(third.what(),
                 "no port of this engine speaks tcp, only shm, loop: give the engine another URI; "
                 "example: engine{{\"shm://\", \"tcp://\"}}");
}

TEST(engine, serves_and_calls_over_several_ports_at_once) {
    loop_network net;
    std::vector<std::unique_ptr<port>> ports;
    ports.push_back(net.port("left"));
    ports.push_back(net.port("right"));
    engine both{std::move(ports)};
    engine client{net.port("client")};
    EXPECT_EQ(both.addresses(), (std::vector<std::string>{"loop://left", "loop://right"}));
    both.define("port", [] { return static_cast<int>(call_context::current().from().port()); });
    auto which = client.procedure<int()>("port");
    auto left = which.on("loop://left").start();
    auto right = which.on("loop://right").start();
    net.run_until_idle();
    EXPECT_EQ(left.get(), 0);
    EXPECT_EQ(right.get(), 1);
}

TEST(engine, refuses_what_is_null_and_a_stream_that_is_not_there) {
    const auto code_of = [](auto make) { return error_of(make).code().code; };
    EXPECT_EQ(code_of([] { engine here("loop://null", {.interceptors = {nullptr}}); }),
              errc::invalid);
    EXPECT_EQ(code_of([] { engine here{std::unique_ptr<port>()}; }), errc::invalid);
    engine here("loop://null");
    EXPECT_EQ(code_of([&] { (void)here.stream(1); }), errc::invalid);
}

TEST(call_context, is_there_in_handlers_and_nowhere_else) {
    const auto nowhere = [] {
        return call_context::try_current() == nullptr &&
               error_of([] { (void)call_context::current(); }).code() == errc::invalid;
    };
    loop_pair two;
    int right = 0;
    const auto handler = [&](std::string_view name) {
        right += &call_context::current() == call_context::try_current() &&
                         call_context::current().procedure() == name
                     ? 1
                     : 0;
    };
    two.server.define("ult", [&] {
        handler("ult");
        this_task::sleep_for(1ms);  // Lets another ULT of the stream run.
        handler("ult");
    });
    two.server.define("inline", [&] { handler("inline"); }, {.run = handler::inline_});
    EXPECT_TRUE(nowhere());
    const auto beside = two.server.spawn([&] {
        for (int i = 0; i < 10; ++i) {
            EXPECT_TRUE(nowhere());
            this_task::yield();
        }
    });
    two.in_client([&] {
        EXPECT_TRUE(nowhere());
        auto ult = two.client.procedure<void()>("ult").on(two.there()).start();
        two.client.procedure<void()>("inline").on(two.there())();
        ult.get();
    });
    EXPECT_TRUE(nowhere());
    EXPECT_EQ(right, 3);
}

TEST(engine, runs_the_handlers_of_one_engine_one_at_a_time_between_their_waits) {
    engine server{"shm://", {.streams = 3}};
    engine client{"shm://"};
    bool inside = false;  // Not atomic, so that ThreadSanitizer detects concurrency.
    int calls = 0;
    server.define("f", [&] {
        for (int i = 0; i < 3; ++i) {
            EXPECT_FALSE(std::exchange(inside, true));
            ++calls;
            inside = false;
            this_task::yield();
        }
    });
    const auto f = client.procedure<void()>("f").on(server.address());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 100; ++i)
                f();
        });
    }
    for (std::thread& each : threads)
        each.join();
    server.stop();
    EXPECT_EQ(calls, 1200);
}

TEST(engine, run_and_spawn_bring_what_the_function_throws_and_nothing_once_stopped) {
    engine here{"loop://runs"};
    EXPECT_EQ(here.run([] { return 7; }), 7);
    const auto throws = [] { throw std::runtime_error("mine"); };
    EXPECT_THROW(here.run(throws), std::runtime_error);
    EXPECT_THROW(here.spawn(throws).get(), std::runtime_error);
    here.stop();
    bool ran = false;
    EXPECT_EQ(error_of([&] { here.run([&] { ran = true; }); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { (void)here.spawn([&] { ran = true; }); }).code(), errc::closed);
    EXPECT_FALSE(ran);
}

TEST(engine, a_function_of_run_or_spawn_may_exit_its_ult) {
    engine here{"loop://exits"};
    bool unwound = false;
    here.run([&] {
        const std::shared_ptr<void> at_end(nullptr, [&](void*) { unwound = true; });
        this_task::exit();
    });
    EXPECT_TRUE(unwound);
    EXPECT_TRUE(here.spawn([] { this_task::exit(); }).wait().ok());
    const auto brings_nothing = []() -> int { this_task::exit(); };
    EXPECT_EQ(error_of([&] { here.run(brings_nothing); }).code(), errc::canceled);
    EXPECT_EQ(here.spawn(brings_nothing).wait(), errc::canceled);
    EXPECT_EQ(here.run([] { return 7; }), 7);
}

TEST(engine, a_call_whose_limit_is_over_before_it_begins_is_timed_out) {
    loop_pair two;
    two.server.define("next", [](int number) { return number + 1; });
    const auto next = two.client.procedure<int(int)>("next").on(two.there());
    two.in_client([&] {
        for (const auto over : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
            EXPECT_EQ(next.within(over).try_call(1).code(), errc::timed_out);
            next.within(over).post(1);
        }
        EXPECT_EQ(next.within(std::chrono::nanoseconds::max())(1), 2);
    });
}

TEST(engine, waits_as_good_as_for_ever_where_its_limits_say_so) {
    constexpr auto for_ever = std::chrono::milliseconds::max();
    for (const char* uri : {"shm://", "tcp://127.0.0.1:0"}) {
        engine server(uri, {.ports = {.silence_limit = for_ever, .frame_limit = for_ever},
                            .drain = for_ever});
        engine client(uri, {.ports = {.silence_limit = for_ever}});
        server.define("next", [](int number) { return number + 1; });
        EXPECT_EQ(client.procedure<int(int)>("next").on(server.address())(1), 2) << uri;
    }
}

TEST(engine, a_handler_may_be_undefined_while_it_runs) {
    loop_pair two;
    two.server.define("once", [&two, text = std::string(100, 'o')] {
        EXPECT_TRUE(two.server.undefine("once"));
        this_task::sleep_for(1ms);
        return text;
    });
    auto once = two.client.procedure<std::string()>("once").on(two.there());
    EXPECT_EQ(two.in_client([&] { return once(); }), std::string(100, 'o'));
    EXPECT_EQ(two.in_client([&] { return once.try_call().code(); }), errc::not_found);
}

TEST(engine, counts_what_it_does) {
    loop_pair two;
    two.server.define("f", [](int a) { return a; });
    two.in_client([&] {
        auto f = two.client.procedure<int(int)>("f").on(two.there());
        for (int i = 0; i < 3; ++i)
            f(i);
        (void)two.client.procedure<int(int)>("g").on(two.there()).try_call(1);
    });
    auto client = counters_of(two.client), server = counters_of(two.server);
    EXPECT_EQ(client["rpc.calls"], 4u);
    EXPECT_EQ(client["rpc.failed"], 1u);
    EXPECT_EQ(server["rpc.served"], 3u);
    EXPECT_EQ(server["rpc.refused"], 1u);
}

}  // namespace
}  // namespace amalgam
