#include <atomic>
#include <deque>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include <ff/buffer.hpp>
#include <gtest/gtest.h>

#include "memory/memory.hpp"

namespace ff::detail {
namespace {

void* item(std::uintptr_t number) {
    return reinterpret_cast<void*>(number);
}
std::uintptr_t number(const void* of) {
    return reinterpret_cast<std::uintptr_t>(of);
}

TEST(channel, gives_what_was_pushed_in_order) {
    for (const bool fixed : {false, true}) {
        for (unsigned seed = 1; seed != 20; ++seed) {
            std::minstd_rand random(seed);
            channel queue(700, fixed);
            std::deque<std::uintptr_t> expected;
            std::uintptr_t pushed = 0;
            for (int step = 0; step != 5000; ++step) {
                // Runs, so that it fills and empties several blocks.
                const bool push = (step / 1000 + random() % 4) % 3 != 0;
                if (push) {
                    ASSERT_EQ(queue.full(), fixed && expected.size() == 700);
                    if (queue.try_push(item(pushed + 1))) expected.push_back(++pushed);
                } else {
                    void* found = nullptr;
                    ASSERT_EQ(queue.empty(), expected.empty());
                    ASSERT_EQ(queue.try_pop(&found), !expected.empty());
                    if (expected.empty()) continue;
                    ASSERT_EQ(number(found), expected.front());
                    expected.pop_front();
                }
                ASSERT_EQ(queue.length(), expected.size());
                ASSERT_EQ(queue.sent(), pushed);
            }
        }
    }
}

TEST(channel, that_is_closed_drops_what_is_pushed_until_it_is_reopened) {
    channel queue;
    for (std::uintptr_t i = 1; i != 1000; ++i)
        queue.push(item(i));
    queue.close();
    queue.discard();
    EXPECT_TRUE(queue.try_push(item(1)));
    EXPECT_TRUE(queue.empty());
    queue.reopen();
    queue.push(item(7));
    void* found = nullptr;
    ASSERT_TRUE(queue.try_pop(&found));
    EXPECT_EQ(number(found), 7u);
}

TEST(channel, changes_its_size_while_items_are_in_it) {
    channel queue(4, true);
    for (std::uintptr_t i = 1; i <= 4; ++i)
        ASSERT_TRUE(queue.try_push(item(i)));
    ASSERT_FALSE(queue.try_push(item(5)));
    EXPECT_EQ(queue.changesize(600), 4u);
    for (std::uintptr_t i = 5; i <= 600; ++i)
        ASSERT_TRUE(queue.try_push(item(i)));
    ASSERT_FALSE(queue.try_push(item(601)));
    void* found = nullptr;
    for (std::uintptr_t i = 1; i <= 600; ++i) {
        ASSERT_TRUE(queue.try_pop(&found));
        ASSERT_EQ(number(found), i);
    }
}

TEST(channel, without_memory_refuses_items_but_no_end_of_a_stream) {
    using amalgam::memory::failing;
    for (const bool fixed : {false, true}) {
        channel queue(5000, fixed);
        std::deque<void*> expected;
        const auto push = [&](void* what) {
            queue.push(what);
            expected.push_back(what);
        };
        const auto refuses = [&](void* what) {
            const failing one(1);
            EXPECT_THROW(push(what), std::bad_alloc);
        };
        for (int stream = 0; stream != 4; ++stream) {
            if (stream != 0) refuses(item(7));    // The last end took the memory kept for this one.
            while (expected.size() % 512 != 511)  // The next item takes memory.
                push(item(expected.size() + 1));
            refuses(item(7));
            const failing one(1);
            EXPECT_NO_THROW(push(FF_EOS));
            EXPECT_TRUE(failing::struck());
        }
        for (void* const each : expected) {
            void* found = nullptr;
            ASSERT_TRUE(queue.try_pop(&found));
            ASSERT_EQ(found, each);
        }
        EXPECT_TRUE(queue.empty());
    }
}

// Each side sleeps for each item of the other: one wake-up that is lost, and it never ends.
TEST(channel, loses_no_wake_up) {
    constexpr std::uintptr_t rounds = 5000;
    channel there;
    channel back;
    std::thread other([&] {
        void* found = nullptr;
        for (std::uintptr_t i = 1; i <= rounds; ++i) {
            there.wait_item();
            there.try_pop(&found);
            if (i % 50 == 0) std::this_thread::yield();
            back.push(found);
        }
    });
    std::uintptr_t wrong = 0;
    void* found = nullptr;
    for (std::uintptr_t i = 1; i <= rounds; ++i) {
        there.push(item(i));
        back.wait_item();
        wrong += back.try_pop(&found) && number(found) == i ? 0 : 1;
    }
    other.join();
    EXPECT_EQ(wrong, 0u);
}

TEST(channel, of_a_fixed_size_wakes_who_waits_for_room) {
    constexpr std::uintptr_t many = 20'000;
    channel queue(3, true);
    std::thread producer([&] {
        for (std::uintptr_t i = 1; i <= many; ++i)
            queue.push(item(i));
    });
    std::uintptr_t wrong = 0;
    for (std::uintptr_t i = 1; i <= many; ++i) {
        void* found = nullptr;
        queue.wait_item();
        if (!queue.try_pop(&found) || number(found) != i || queue.length() > 3) ++wrong;
    }
    producer.join();
    EXPECT_EQ(wrong, 0u);
}

// As the collector of an ordered farm, while another worker is ahead.
TEST(bell, of_who_waits_for_one_queue_is_heard_from_that_one_and_from_nobody_in_particular) {
    constexpr std::uintptr_t rounds = 2000;
    bell news;
    channel awaited;
    channel other;
    channel back;
    awaited.wakes(&news, nullptr);
    other.wakes(&news, nullptr);
    std::atomic<bool> asked{false};
    std::thread sleeper([&] {
        void* found = nullptr;
        for (std::uintptr_t i = 1; i <= rounds; ++i) {
            news.sleep_until([&] { return !awaited.empty(); }, &awaited);
            awaited.try_pop(&found);
            back.push(found);
        }
        news.sleep_until([&] { return asked.load(); }, &awaited);
        back.push(item(1));
    });
    void* found = nullptr;
    for (std::uintptr_t i = 1; i <= rounds; ++i) {
        for (std::uintptr_t k = 1; k != 1 + i % 100; ++k)
            other.push(item(k));
        awaited.push(item(i));
        back.wait_item();
        back.try_pop(&found);
    }
    asked = true;
    news.ring();
    back.wait_item();
    sleeper.join();
    EXPECT_EQ(number(found), rounds);
    EXPECT_FALSE(other.empty());
}

}  // namespace
}  // namespace ff::detail
