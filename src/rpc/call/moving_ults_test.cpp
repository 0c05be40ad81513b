#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

// ULTs that go on now on the engine's first stream, now on another one.
namespace amalgam {
namespace {

class moving_ults : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(loop, moving_ults, testing::Values("loop://moving"));
INSTANTIATE_TEST_SUITE_P(shm, moving_ults, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, moving_ults, testing::Values("tcp://127.0.0.1:0"));

engine_options two_streams() {
    return {.streams = {{.pools = {"work"}}, {.pools = {"work"}}}, .pools = {{"work"}}};
}

TEST_P(moving_ults, post_and_start_calls_in_order) {
    constexpr int each_posts = 3000, ults = 4;
    engine server(GetParam());
    engine client(GetParam() == std::string("loop://moving") ? "loop://moving-client" : GetParam(),
                  two_streams());
    std::array<std::atomic<int>, ults> arrived{};
    std::atomic<int> misplaced{0};
    const auto note = [&](std::size_t by, int number) {
        if (arrived[by].fetch_add(1) != number) ++misplaced;
    };
    server.define("post", note, {.run = handler::inline_});
    server.define("start", note, {.run = handler::inline_});
    const peer there = client.lookup(server.address());
    const auto post = client.procedure<void(std::size_t, int)>("post").on(there);
    const auto start = client.procedure<void(std::size_t, int)>("start").on(there);
    std::vector<ult> all;
    for (std::size_t by = 0; by < ults; ++by) {
        all.push_back(spawn(client.pool("work"), [&, by] {
            std::optional<future<void>> last;
            for (int i = 0; i < each_posts; ++i) {
                const bool in_runs = i / 100 % 2 == 0;  // Of posts, and of all kinds in turn.
                if (!in_runs && i % 3 == 0) {
                    if (last) last->get();
                    last = start.start(by, i);
                } else if (in_runs || i % 3 == 1) {
                    post.post(by, i);
                } else {
                    start.within(std::chrono::hours(1))(by, i);
                }
                this_task::yield();
            }
            if (last) last->get();
        }));
    }
    for (ult& each : all)
        each.join();
    for (auto& each : arrived)
        while (each < each_posts)
            std::this_thread::yield();
    EXPECT_EQ(misplaced, 0);
}

}  // namespace
}  // namespace amalgam
