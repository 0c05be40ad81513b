#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(clock, steady_one_is_the_machines) {
    auto before = std::chrono::steady_clock::now();
    auto now = clock::steady().now();
    auto after = std::chrono::steady_clock::now();
    EXPECT_LE(before, now);
    EXPECT_LE(now, after);
}

TEST(manual_clock, moves_only_when_told) {
    manual_clock time;
    auto start = time.now();
    EXPECT_EQ(time.now(), start);
    time.advance(5ms);
    EXPECT_EQ(time.now() - start, 5ms);
    time.advance_to(start + 1s);
    EXPECT_EQ(time.now() - start, 1s);
    EXPECT_GT(start - 1s, clock::time_point{});
}

TEST(manual_clock, threads_that_move_it_at_once_lose_no_step_and_see_none_back) {
    manual_clock time;
    const auto start = time.now();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            auto last = time.now();
            for (int i = 0; i < 2000; ++i) {
                time.advance(1ms);
                const auto now = time.now();
                EXPECT_GE(now, last + 1ms);
                last = now;
            }
        });
    }
    for (auto& one : threads)
        one.join();
    EXPECT_EQ(time.now() - start, 8s);
}

TEST(cycles, never_go_backwards_on_one_thread) {
    std::uint64_t last = cycles();
    for (int i = 0; i < 1000; ++i) {
        std::uint64_t next = cycles();
        ASSERT_GE(next, last);
        last = next;
    }
}

}  // namespace
}  // namespace amalgam
