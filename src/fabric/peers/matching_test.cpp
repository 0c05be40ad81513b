#include "fabric/peers/matching.hpp"

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

struct receive : completion {
    explicit receive(std::uint64_t tag)
        : completion([](completion&, status, std::size_t) noexcept {}) {
        port_words[1] = tag;
    }
};

TEST(matching, receive_takes_the_oldest_message_of_its_tag) {
    matching table;
    early_pool pool;
    early_message* a = pool.take();
    early_message* b = pool.take();
    early_message* other = pool.take();
    a->tag = b->tag = 5;
    other->tag = 6;
    table.add(*other);
    table.add(*a);
    table.add(*b);
    EXPECT_EQ(table.take_message(5), a);
    EXPECT_EQ(table.take_message(5), b);
    EXPECT_EQ(table.take_message(5), nullptr);
    EXPECT_EQ(table.take_message(6), other);
    EXPECT_TRUE(table.empty());
}

TEST(matching, does_what_a_map_of_queues_does) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        seeded_random random(seed);
        matching table;
        early_pool pool;
        std::map<std::uint64_t, std::deque<completion*>> receives;
        std::map<std::uint64_t, std::deque<early_message*>> messages;
        std::vector<std::unique_ptr<receive>> all;
        const std::uint64_t tags = 1 + random.below(200);

        for (int step = 0; step < 3000; ++step) {
            // Tags as users choose them: counters, and tags that differ only in the high bits.
            std::uint64_t tag = random.below(tags);
            if (seed % 2 == 0) tag <<= 48;
            switch (random.below(3)) {
                case 0: {  // A receive is posted.
                    early_message* early = table.take_message(tag);
                    auto& waiting = messages[tag];
                    ASSERT_EQ(early, waiting.empty() ? nullptr : waiting.front());
                    if (early != nullptr) {
                        waiting.pop_front();
                        pool.give_back(*early);
                        break;
                    }
                    all.push_back(std::make_unique<receive>(tag));
                    table.add(*all.back());
                    receives[tag].push_back(all.back().get());
                    break;
                }
                case 1: {  // A message arrives.
                    completion* op = table.take_receive(tag);
                    auto& waiting = receives[tag];
                    ASSERT_EQ(op, waiting.empty() ? nullptr : waiting.front());
                    if (op != nullptr) {
                        waiting.pop_front();
                        break;
                    }
                    early_message* early = pool.take();
                    early->tag = tag;
                    table.add(*early);
                    messages[tag].push_back(early);
                    break;
                }
                default: {  // A receive is canceled.
                    auto& waiting = receives[tag];
                    if (waiting.empty()) break;
                    const std::size_t which = random.below(waiting.size());
                    table.remove(*waiting[which]);
                    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
                    break;
                }
            }
        }
        std::size_t left = 0;
        for (const auto& [tag, waiting] : receives)
            left += waiting.size();
        for (const auto& [tag, waiting] : messages)
            left += waiting.size();
        std::size_t drained = 0;
        table.drain([&](completion&) { ++drained; }, [&](early_message&) { ++drained; });
        EXPECT_EQ(drained, left);
        EXPECT_TRUE(table.empty());
    }
}

TEST(matching, tags_used_once_each_leave_nothing_behind) {
    matching table;
    std::vector<std::unique_ptr<receive>> window;
    for (std::uint64_t tag = 0; tag < 100000; ++tag) {
        window.push_back(std::make_unique<receive>(tag));
        table.add(*window.back());
        if (tag < 16) continue;
        completion* op = table.take_receive(tag - 16);
        ASSERT_EQ(op, window[tag - 16].get());
        window[tag - 16].reset();
    }
    std::size_t left = 0;
    table.drain([&](completion&) { ++left; }, [&](early_message&) {});
    EXPECT_EQ(left, 16u);
}

}  // namespace
}  // namespace amalgam::detail
