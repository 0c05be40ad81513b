#include "turn_order.hpp"

#include <deque>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "memory/memory.hpp"

namespace ff::detail {
namespace {

/// Turns, most of them of the next worker, some of any.
class choices {
public:
    choices(unsigned seed, std::size_t workers) : random_(seed), workers_(workers) {}
    std::size_t next() {
        last_ = random_() % 4 == 0 ? random_() % workers_ : (last_ + 1) % workers_;
        return last_;
    }
    bool coin() { return random_() % 2 == 0; }
    std::size_t below(std::size_t bound) { return random_() % bound; }

private:
    std::minstd_rand random_;
    std::size_t workers_;
    std::size_t last_ = 0;
};

TEST(turn_order, gives_the_turns_that_were_told) {
    for (const std::size_t workers : {1, 2, 3, 7}) {
        for (unsigned seed = 1; seed != 50; ++seed) {
            choices choose(seed, workers);
            turn_order turns(workers);
            std::deque<std::size_t> expected;
            for (int step = 0; step != 1000; ++step) {
                if (choose.coin()) {
                    expected.push_back(choose.next());
                    turns.tell(expected.back());
                }
                if (choose.coin()) {
                    ASSERT_EQ(turns.here(), !expected.empty());
                    if (expected.empty()) continue;
                    ASSERT_EQ(turns.worker(), expected.front());
                    turns.take();
                    expected.pop_front();
                }
            }
        }
    }
}

TEST(turn_order, has_no_turn_after_the_end_until_the_next_stream_begins) {
    turn_order turns(2);
    turns.tell(0);
    turns.end();
    turns.tell(0);
    ASSERT_TRUE(turns.here());
    turns.take();
    EXPECT_FALSE(turns.here());
    turns.leave();
    EXPECT_FALSE(turns.stale());
    turns.begin_stream();
    ASSERT_TRUE(turns.here());
    EXPECT_EQ(turns.worker(), 0u);
    turns.take();
    EXPECT_FALSE(turns.here());
}

TEST(turn_order, of_a_stream_is_not_mixed_with_what_was_left_of_the_one_before) {
    for (unsigned seed = 1; seed != 200; ++seed) {
        choices choose(seed, 3);
        turn_order turns(3);
        for (int stream = 0; stream != 5; ++stream) {
            std::vector<std::size_t> told;
            for (std::size_t left = choose.below(20); left != 0; --left) {
                told.push_back(choose.next());
                turns.tell(told.back());
            }
            for (std::size_t at = 0, until = choose.below(told.size() + 1); at != until; ++at) {
                ASSERT_TRUE(turns.here());
                ASSERT_EQ(turns.worker(), told[at]);
                turns.take();
            }
            turns.leave();
            if (choose.coin()) {  // The end was told, and dropped while frozen or later.
                turns.end();
                if (choose.coin()) {
                    EXPECT_TRUE(turns.drop_stale());
                }
            }
            turns.mark();
            turns.begin_stream();
            ASSERT_FALSE(turns.here());
        }
    }
}

TEST(turn_order, begins_a_run_anew) {
    turn_order turns(3);
    turns.tell(0);
    turns.tell(2);
    turns.leave();
    turns.close();
    turns.tell(1);
    turns.reopen();
    EXPECT_FALSE(turns.here());
    turns.tell(0);
    ASSERT_TRUE(turns.here());
    EXPECT_EQ(turns.worker(), 0u);
}

TEST(turn_order, without_memory_refuses_a_turn_as_a_whole) {
    turn_order turns(2);
    int refused = 0;
    constexpr int many = 2000;
    for (int i = 0; i != many; ++i) {
        const std::size_t worker = i / 2 % 2;  // Each second is written down.
        try {
            const amalgam::memory::failing one(1);
            turns.tell(worker);
        } catch (const std::bad_alloc&) {
            ++refused;
            turns.tell(worker);
        }
    }
    EXPECT_GT(refused, 0);
    for (int i = 0; i != many; ++i) {
        ASSERT_TRUE(turns.here());
        ASSERT_EQ(turns.worker(), static_cast<std::size_t>(i / 2 % 2)) << i;
        turns.take();
    }
    EXPECT_FALSE(turns.here());
}

TEST(turn_order, ends_a_stream_without_memory) {
    for (int written = 0; written != 600; ++written) {
        turn_order turns(2);
        for (int i = 0; i != written; ++i) {
            turns.tell(0);
            turns.here();
            turns.take();
        }
        {
            const amalgam::memory::failing one(1);
            EXPECT_NO_THROW(turns.end());
        }
        EXPECT_FALSE(turns.here());
        turns.leave();
        EXPECT_FALSE(turns.stale());
    }
}

TEST(turn_order, is_read_while_it_is_told) {
    constexpr int many = 20'000;
    turn_order turns(3);
    std::thread emitter([&] {
        choices choose(7, 3);
        for (int i = 0; i != many; ++i)
            turns.tell(choose.next());
        turns.end();
    });
    choices choose(7, 3);
    int wrong = 0;
    for (int i = 0; i != many; ++i) {
        while (!turns.here())
            std::this_thread::yield();
        wrong += turns.worker() == choose.next() ? 0 : 1;
        turns.take();
    }
    emitter.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_FALSE(turns.here());
}

}  // namespace
}  // namespace ff::detail
