#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/tasks/event.hpp>

#include "conformance/child_process.hpp"
#include "rpc/loop_pair.hpp"

// Peers that hang, with engine_options::keepalive: in virtual time, and as stopped processes.
namespace amalgam {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

struct watchful_pair {
    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client"), {.keepalive = {.interval = 10s, .timeout = 20s}}};

    std::uint64_t pings() { return counters_of(client)["rpc.pings"]; }
};

TEST(keepalive, a_connection_on_which_nothing_waits_carries_no_ping) {
    watchful_pair two;
    two.server.define("echo", [](int number) { return number; });
    auto once = two.client.procedure<int(int)>("echo").on(two.server.address()).start(7);
    two.net.run_for(1h);
    EXPECT_EQ(once.get(), 7);
    EXPECT_EQ(two.pings(), 0u);
}

TEST(keepalive, a_peer_that_answers_pings_is_waited_for) {
    watchful_pair two;
    two.server.define("slow", [] { this_task::sleep_for(1h); });
    auto call = two.client.procedure<void()>("slow").on(two.server.address()).start();
    two.net.run_until_idle();
    EXPECT_TRUE(call.wait().ok());
    EXPECT_GE(two.pings(), 350u);
    EXPECT_LE(two.pings(), 361u);
    EXPECT_EQ(counters_of(two.client)["rpc.pings_unanswered"], 0u);
}

TEST(keepalive, is_off_by_default) {
    loop_pair two;
    two.server.define("slow", [] { this_task::sleep_for(1h); });
    auto call = two.client.procedure<void()>("slow").on(two.server.address()).start();
    two.net.run_until_idle();
    EXPECT_TRUE(call.wait().ok());
    EXPECT_EQ(counters_of(two.server)["rpc.served"], 1u);
}

TEST(keepalive, a_wrong_option_is_refused_with_a_sentence) {
    EXPECT_THROW((engine{"shm://", {.keepalive = {.interval = -1ms}}}), error);
    const error why = error_of([] {
        engine{"shm://", {.keepalive = {.interval = 1s, .timeout = 0ms}}};
    });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_NE(std::string(why.what()).find("keepalive.timeout is 0 ms"), std::string::npos);
}

class keepalive_processes : public testing::TestWithParam<const char*> {
protected:
    keepalive_processes()
        : client_(calls(), {.drain = 10ms, .keepalive = {.interval = 20ms, .timeout = 1s}}) {}

    static const char* calls() {
        return std::string_view(GetParam()).starts_with("shm") ? "shm://" : "tcp://";
    }
    static int serve(channel& parent) {
        event never;
        engine server{GetParam(), {.drain = 10ms}};
        server.define("echo", [](std::string text) { return text; });
        server.define("wait", [&] { never.wait(); });
        server.define("count", [&](stream_writer<int>& to) {
            to(1);
            never.wait();
        });
        server.define("note", [](std::string) {});
        parent.say(server.address());
        (void)parent.hear();
        return 0;
    }

    static void expect_named(const failure& why) {
        EXPECT_EQ(why.what.code, errc::disconnected);
        EXPECT_NE(why.sentence.find("did not answer pings within keepalive.timeout"),
                  std::string::npos)
            << why.sentence;
    }

    child_process server_{&keepalive_processes::serve};  // Forked before any ULT runs.
    std::string address_ = server_.line().hear();
    engine client_;
};

INSTANTIATE_TEST_SUITE_P(shm, keepalive_processes, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, keepalive_processes, testing::Values("tcp://127.0.0.1:0"));

template <typename T>
failure failure_of(future<T>& ended) {
    const error why = error_of([&] { ended.get(); });
    return {why.code(), why.what()};
}

TEST_P(keepalive_processes, calls_in_flight_to_a_stopped_process_end) {
    const peer there = client_.lookup(address_);
    auto wait = client_.procedure<void()>("wait").on(there);
    std::vector<future<void>> calls;
    for (int i = 0; i < 20; ++i)
        calls.push_back(wait.start());
    EXPECT_EQ(client_.procedure<std::string(std::string)>("echo").on(there)("x"), "x");
    server_.freeze();
    for (auto& each : calls)
        expect_named(failure_of(each));
    server_.thaw();
}

TEST_P(keepalive_processes, calls_made_after_it_was_stopped_end) {
    const peer there = client_.lookup(address_);
    auto echo = client_.procedure<std::string(std::string)>("echo").on(there);
    EXPECT_EQ(echo("x"), "x");
    server_.freeze();
    std::vector<future<std::string>> large;  // Some of them half sent.
    for (int i = 0; i < 60; ++i)
        large.push_back(echo.start(std::string(30000, 'l')));
    for (auto& each : large)
        expect_named(failure_of(each));
    const auto first = echo.try_call("y");
    expect_named({first.code(), std::string(first.sentence())});
    const auto second = echo.try_call("z");
    expect_named({second.code(), std::string(second.sentence())});
    server_.thaw();
    const auto call_again = [&] {
        return client_.procedure<std::string(std::string)>("echo").on(address_).try_call("back");
    };
    auto back = call_again();
    while (back.code() == errc::disconnected)  // On a busy machine it is still slow to answer.
        back = call_again();
    EXPECT_EQ(back.value(), "back");
}

TEST_P(keepalive_processes, a_stream_from_a_stopped_process_ends) {
    auto values = client_.procedure<streamed<int>()>("count").on(client_.lookup(address_))();
    EXPECT_EQ(values.next(), 1);
    server_.freeze();
    const error why = error_of([&] { (void)values.next(); });
    expect_named({why.code(), why.what()});
    server_.thaw();
}

TEST_P(keepalive_processes, a_sender_waiting_for_room_goes_on) {
    const peer there = client_.lookup(address_);
    auto note = client_.procedure<void(std::string)>("note").on(there);
    note.post("x");
    EXPECT_EQ(client_.procedure<std::string(std::string)>("echo").on(there)("x"), "x");
    server_.freeze();
    const error why = error_of([&] {
        for (;;)
            note.post(std::string(10000, 'n'));
    });
    EXPECT_EQ(why.code(), errc::disconnected);
    server_.thaw();
}

TEST_P(keepalive_processes, a_process_that_serves_is_not_cut_off) {
    engine patient{calls(), {.drain = 10ms, .keepalive = {.interval = 5ms, .timeout = 1h}}};
    auto echo = patient.procedure<std::string(std::string)>("echo").on(patient.lookup(address_));
    auto wait = patient.procedure<void()>("wait").on(patient.lookup(address_)).start();
    while (counters_of(patient)["rpc.pings"] < 30)
        EXPECT_EQ(echo("x"), "x");
    EXPECT_EQ(counters_of(patient)["rpc.pings_unanswered"], 0u);
    EXPECT_FALSE(wait.ready());
}

}  // namespace
}  // namespace amalgam
