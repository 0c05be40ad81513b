#include <chrono>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "rpc/loop_pair.hpp"

// When calls are retried.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Times at which a call that is always refused was retried.
std::vector<std::chrono::milliseconds> pauses_of(unsigned attempts,
                                                 std::chrono::milliseconds pause) {
    loop_network net;
    engine server{net.port("server"), {.max_running = 0}};
    engine client{net.port("client")};
    server.define("f", [] {});
    const auto f = client.procedure<void()>("f", {.idempotent = true})
                       .on(server.address())
                       .retrying(attempts, pause);
    std::vector<std::chrono::milliseconds> pauses;
    const auto start = f.start();
    net.run_for(0ms);
    clock::time_point last = net.now();
    while (!start.ready()) {
        const std::uint64_t before = counters_of(client)["rpc.retried"];
        net.run_for(pause / 4);
        if (counters_of(client)["rpc.retried"] == before) continue;
        pauses.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(net.now() - last));
        last = net.now();
    }
    return pauses;
}

using times = std::vector<std::chrono::milliseconds>;

TEST(retry, pauses_twice_as_long_each_time) {
    EXPECT_EQ(pauses_of(6, 20ms), (times{20ms, 40ms, 80ms, 160ms, 320ms}));
    EXPECT_EQ(pauses_of(1, 20ms), times{});
}

TEST(retry, a_pause_of_a_minute_or_more_stays_as_it_is) {
    EXPECT_EQ(pauses_of(5, 40s), (times{40s, 80s, 80s, 80s}));
    EXPECT_EQ(pauses_of(3, 1h), (times{1h, 1h}));
}

}  // namespace
}  // namespace amalgam
