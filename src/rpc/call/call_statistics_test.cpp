#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/rpc/call_statistics.hpp>
#include <amalgam/rpc/engine.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(call_statistics, counts_calls_failures_and_times_of_both_sides_by_procedure) {
    loop_network net;
    const auto here = std::make_shared<call_statistics>();
    const auto there = std::make_shared<call_statistics>();
    engine server{net.port("server"), {.interceptors = {there}}};
    engine client{net.port("client"), {.interceptors = {here}}};
    server.define("wait", [](int ms) { this_task::sleep_for(std::chrono::milliseconds(ms)); },
                  {.provider = 2});
    server.define("fail", [] { throw std::runtime_error("no"); });
    const peer to = client.lookup(server.address());
    auto done = client.spawn([&] {
        const auto wait = client.procedure<void(int)>("wait").on(to, 2);
        wait(1);
        wait(3);
        EXPECT_FALSE(client.procedure<void()>("fail").on(to).try_call());
    });
    net.run_until_idle();
    done.get();
    const auto served = there->served_so_far();
    ASSERT_EQ(served.size(), 2u);
    EXPECT_EQ(served[0].name, "fail");
    EXPECT_EQ(served[0].failures, 1u);
    EXPECT_EQ(served[1].name, "wait");
    EXPECT_EQ(served[1].provider, 2u);
    EXPECT_EQ(served[1].calls, 2u);
    EXPECT_EQ(served[1].failures, 0u);
    EXPECT_EQ(served[1].min, 1ms);
    EXPECT_EQ(served[1].max, 3ms);
    EXPECT_EQ(served[1].mean(), 2ms);
    const auto json = nlohmann::json::parse(here->to_json());
    EXPECT_EQ(json["called"][1]["name"], "wait");
    EXPECT_EQ(json["called"][1]["calls"], 2);
    EXPECT_GE(json["called"][1]["ns"]["max"], 3'000'000);
    EXPECT_TRUE(json["served"].empty());
    here->clear();
    EXPECT_TRUE(here->called_so_far().empty());
}

TEST(call_statistics, any_number_of_names_takes_bounded_memory) {
    loop_network net;
    const auto there = std::make_shared<call_statistics>();
    engine server{net.port("server"), {.interceptors = {there}}};
    engine client{net.port("client")};
    server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    const peer to = client.lookup(server.address());
    auto done = client.spawn([&] {
        for (int i = 0; i < 5000; ++i)
            client.procedure<void()>("\xff" + std::to_string(i)).on(to)();
    });
    net.run_until_idle();
    done.get();
    const auto served = there->served_so_far();
    EXPECT_EQ(served.size(), 4097u);
    EXPECT_TRUE(nlohmann::json::accept(there->to_json()));
}

}  // namespace
}  // namespace amalgam
