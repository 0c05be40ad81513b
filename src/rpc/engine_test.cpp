#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

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

TEST(engine, an_address_of_a_transport_it_has_no_port_for_is_unsupported) {
    loop_pair two;
    const error other = error_of([&] { two.client.lookup("tcp://127.0.0.1:1"); });
    EXPECT_EQ(other.code(), errc::unsupported);
    EXPECT_NE(std::string(other.what()).find("speaks tcp, only loop"), std::string::npos);
    EXPECT_EQ(error_of([&] { two.client.lookup("no address"); }).code(), errc::invalid);
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
