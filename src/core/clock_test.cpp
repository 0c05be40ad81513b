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
