#include "flow/processes/loop_rounds.hpp"

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

TEST(loop_rounds, end_when_all_that_was_added_was_taken_away_a_round_ago) {
    loop_rounds tested;
    tested.hear({3, 1});
    tested.hear({1, 1});
    EXPECT_FALSE(tested.is_over());
    tested.hear({3, 2});
    tested.hear({1, 2});  // All taken away, but only in this round.
    EXPECT_FALSE(tested.is_over());
    tested.hear({3, 2});
    tested.hear({1, 2});
    EXPECT_TRUE(tested.is_over());
}

TEST(loop_rounds, do_not_end_when_more_was_added_meanwhile) {
    loop_rounds tested;
    tested.hear({4, 4});
    EXPECT_FALSE(tested.is_over());
    tested.hear({5, 5});
    EXPECT_FALSE(tested.is_over());
    tested.hear({5, 5});
    EXPECT_TRUE(tested.is_over());
}

TEST(loop_rounds, of_which_one_misses_an_answer_say_nothing) {
    for (const bool not_started : {false, true}) {
        loop_rounds tested;
        const auto miss = [&] { not_started ? tested.hear({}) : tested.miss(); };
        for (int i = 0; i < 3; ++i) {
            tested.hear({0, 0});
            miss();
            tested.hear({0, 0});
            EXPECT_FALSE(tested.is_over());
        }
        tested.hear({2, 2});  // The previous round was incomplete.
        EXPECT_FALSE(tested.is_over());
        tested.hear({2, 2});
        miss();
        EXPECT_FALSE(tested.is_over());
        tested.hear({2, 2});
        EXPECT_FALSE(tested.is_over());
        tested.hear({2, 2});
        EXPECT_TRUE(tested.is_over());
    }
}

}  // namespace
}  // namespace amalgam::detail
