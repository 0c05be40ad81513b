#include <deque>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include <amalgam/rpc/detail/value_queue.hpp>

namespace amalgam::detail {
namespace {

TEST(value_queue, gives_values_in_the_order_of_a_deque) {
    std::mt19937 random(7);
    std::deque<int> expected;
    value_queue<std::unique_ptr<int>> queue;
    for (int i = 0; i < 20000; ++i) {
        // Long runs of each, so that the ring wraps at many sizes.
        if (random() % 64 > static_cast<unsigned>(i / 100 % 64) || expected.empty()) {
            expected.push_back(i);
            queue.push(std::make_unique<int>(i));
        } else {
            ASSERT_EQ(**queue.pop(), expected.front());
            expected.pop_front();
        }
        ASSERT_EQ(queue.empty(), expected.empty());
    }
}

TEST(value_queue, keeps_no_value_after_it_was_taken) {
    value_queue<std::shared_ptr<int>> queue;
    const auto value = std::make_shared<int>(1);
    queue.push(std::shared_ptr<int>(value));
    queue.pop();
    EXPECT_EQ(value.use_count(), 1);
}

TEST(value_queue, holds_bools) {
    value_queue<bool> queue;
    for (int i = 0; i < 10; ++i)
        queue.push(i % 3 == 0);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(*queue.pop(), i % 3 == 0);
}

}  // namespace
}  // namespace amalgam::detail
