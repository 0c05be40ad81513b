#include "fabric/transports/tcp/deadlines.hpp"

#include <chrono>
#include <functional>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

bool readable(const deadlines& all, int wait_ms) {
    pollfd handle{all.fd(), POLLIN, 0};
    return ::poll(&handle, 1, wait_ms) == 1;
}

struct deadlines_of_numbers : testing::Test {
    struct number final : timed {
        number(int v, std::vector<int>& r) : value(v), ran(r) {}
        void due(clock::time_point) noexcept override {
            ran.push_back(value);
            if (then) then();
        }
        int value;
        std::vector<int>& ran;
        std::function<void()> then;
    };

    deadlines all;
    std::vector<int> ran;
    number one{1, ran}, two{2, ran}, three{3, ran};
    clock::time_point now = clock::steady().now();
};

TEST_F(deadlines_of_numbers, come_due_in_order_of_time) {
    all.add(now + 2ns, two);
    all.add(now + 3h, three);
    all.add(now + 1ns, one);
    all.run(now + 1h);
    EXPECT_EQ(ran, (std::vector{1, 2}));
    EXPECT_FALSE(all.empty());
}

TEST_F(deadlines_of_numbers, a_dropped_one_never_comes_due) {
    all.add(now, one);
    all.drop(now, one);
    all.run(now + 1h);
    EXPECT_TRUE(ran.empty());
    EXPECT_TRUE(all.empty());
}

TEST_F(deadlines_of_numbers, one_that_is_told_may_drop_and_add_others) {
    all.add(now, one);
    all.add(now + 1ns, two);
    one.then = [&] {
        all.drop(now + 1ns, two);
        all.add(now + 2ns, three);
    };
    all.run(now + 1h);
    EXPECT_EQ(ran, (std::vector{1, 3}));
}

TEST_F(deadlines_of_numbers, the_descriptor_is_readable_when_one_is_due_and_not_after) {
    EXPECT_FALSE(readable(all, 0));
    all.add(now + 1h, two);
    EXPECT_FALSE(readable(all, 0));
    all.add(now + 1ms, one);
    EXPECT_TRUE(readable(all, -1));
    all.run(clock::steady().now());
    EXPECT_EQ(ran, std::vector{1});
    EXPECT_FALSE(readable(all, 0));
}

TEST_F(deadlines_of_numbers, the_next_one_is_woken_for_after_the_first) {
    all.add(now, one);
    all.add(now + 1ms, two);
    EXPECT_TRUE(readable(all, -1));
    all.run(now);
    EXPECT_EQ(ran, std::vector{1});
    EXPECT_TRUE(readable(all, -1));
}

}  // namespace
}  // namespace amalgam::detail
