#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(stop_functions, run_last_first_and_those_of_stopping_may_still_call) {
    engine server{"tcp://127.0.0.1:0"};
    server.define("twice", [](int n) { return 2 * n; });
    engine client{"tcp://"};
    const auto twice = client.procedure<int(int)>("twice").on(client.lookup(server.address()));
    std::vector<std::string> told;
    client.on_stopped([&] { told.push_back("stopped 1"); });
    client.on_stopping([&] { told.push_back("stopping " + std::to_string(twice(1))); });
    client.on_stopping([&] { told.push_back("stopping " + std::to_string(twice(2))); });
    client.on_stopped([&] {
        told.push_back("stopped 2");
        throw std::runtime_error("this is logged");
    });
    const auto dropped = client.on_stopping([&] { told.push_back("never"); });
    EXPECT_TRUE(client.drop_stop_function(dropped));
    EXPECT_FALSE(client.drop_stop_function(dropped));
    EXPECT_FALSE(client.stopped());
    client.stop();
    client.stop();
    EXPECT_TRUE(client.stopped());
    EXPECT_EQ(told,
              (std::vector<std::string>{"stopping 4", "stopping 2", "stopped 2", "stopped 1"}));
    EXPECT_EQ(error_of([&] { client.on_stopping([] {}); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { client.on_stopped([] {}); }).code(), errc::closed);
    EXPECT_EQ(error_of([&] { server.on_stopped({}); }).code(), errc::invalid);
}

TEST(stop_functions, may_stop_the_engine_and_add_others_and_cannot_wait_for_its_end) {
    std::vector<int> told;
    {
        engine one{"tcp://"};
        one.on_stopping([&] {
            one.stop();
            EXPECT_EQ(error_of([&] { one.wait_until_stopped(); }).code(), errc::invalid);
            told.push_back(1);
            one.on_stopping([&] { told.push_back(2); });
            one.on_stopped([&] {
                one.stop();
                EXPECT_EQ(error_of([&] { one.wait_until_stopped(); }).code(), errc::invalid);
                told.push_back(3);
            });
        });
    }
    EXPECT_EQ(told, (std::vector<int>{1, 2, 3}));
}

TEST(stop_functions, run_once_whoever_stops_the_engine) {
    for (int i = 0; i < 50; ++i) {
        std::atomic<int> told{0};
        {
            engine one{"tcp://"};
            one.on_stopping([&] { ++told; });
            one.on_stopped([&] { ++told; });
            const std::jthread other([&] { one.stop(); });
            try {
                (void)one.spawn([&] { one.stop(); }).wait();
            } catch (const error& why) {  // The other thread was first.
                EXPECT_EQ(why.code(), errc::closed);
            }
            one.stop();
            EXPECT_EQ(told, 2);
        }
        EXPECT_EQ(told, 2);
    }
}

TEST(stop_functions, of_an_engine_destroyed_by_its_own_handler_run) {
    std::atomic<int> told{0};
    const auto gone = std::make_shared<promise<void>>();  // set_value() may end after get().
    future<void> is_gone = gone->get_future();
    engine client{"tcp://"};
    {
        auto* const server = new engine{"tcp://127.0.0.1:0"};
        server->on_stopping([&] { ++told; });
        server->on_stopped([&told, gone] {
            ++told;
            gone->set_value();
        });
        server->define("end", [server] { delete server; });
        client.procedure<void()>("end").on(server->address()).post();
    }
    is_gone.get();
    EXPECT_EQ(told, 2);
}

TEST(wait_until_stopped, ends_for_threads_and_ults_when_a_handler_stops_the_engine) {
    engine server{"tcp://127.0.0.1:0"};
    server.define("end", [&] { server.stop(); });
    engine client{"tcp://"};
    future<void> in_ult = server.spawn([&] { server.wait_until_stopped(); });
    std::thread waits([&] { server.wait_until_stopped(); });
    client.procedure<void()>("end").on(server.address()).post();
    server.wait_until_stopped();
    waits.join();
    EXPECT_TRUE(in_ult.wait().ok());
    server.wait_until_stopped();
}

TEST(wait_until_stopped, is_refused_where_it_could_not_end) {
    loop_pair two;
    EXPECT_EQ(error_of([&] { two.server.wait_until_stopped(); }).code(), errc::invalid);
}

TEST(stop_remote, stops_an_engine_that_allows_it_and_its_caller_is_answered) {
    engine server{"tcp://127.0.0.1:0", {.remote_stop = true}};
    std::atomic<bool> told{false};
    server.on_stopping([&] { told = true; });
    engine client{"tcp://"};
    client.stop_remote(client.lookup(server.address()));
    server.wait_until_stopped();
    EXPECT_TRUE(told);
    EXPECT_TRUE(server.stopped());
}

TEST(stop_remote, is_denied_by_an_engine_that_does_not) {
    loop_pair two;
    const peer there = two.there();
    two.in_client([&] {
        const error why = error_of([&] { two.client.stop_remote(there); });
        EXPECT_EQ(why.code(), errc::denied);
        EXPECT_NE(std::string(why.what()).find("engine_options::remote_stop"), std::string::npos);
    });
    EXPECT_FALSE(two.server.stopped());
}

TEST(stop_remote, works_in_virtual_time) {
    loop_network net;
    engine server{net.port("server"), {.remote_stop = true}};
    engine client{net.port("client")};
    const peer there = client.lookup(server.address());
    auto asked = client.spawn([&] { client.stop_remote(there); });
    net.run_until_idle();
    EXPECT_TRUE(asked.wait().ok());
    EXPECT_TRUE(server.stopped());
}

}  // namespace
}  // namespace amalgam
