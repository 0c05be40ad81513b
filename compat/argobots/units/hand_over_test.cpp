#include <atomic>

#include <gtest/gtest.h>

#include "abt_testing.hpp"

// To whom a stream is handed by ABT_self_yield_to() and the like: see the guide.
namespace amalgam::argobots_testing {
namespace {

TEST(argobots_hand_over, is_refused_to_ults_that_yield_on_other_streams) {
    const program here;
    const yielding_ults yielding(3);
    for (int i = 0; i < 1'000'000; ++i) {
        ABT_thread const to = yielding.all[static_cast<std::size_t>(i % 3)];
        const int error = i % 2 == 0 ? ABT_self_yield_to(to) : ABT_self_suspend_to(to);
        ASSERT_EQ(error, ABT_ERR_INV_THREAD);
    }
}

struct race {
    ABT_thread to = nullptr;
    std::atomic<int> ready{0};
    std::atomic<int> got_it{0};
    std::atomic<int> refused{0};

    void run() {
        ++ready;
        while (ready != 2) {  // without a yield, so that both are here at once
        }
        const int error = ABT_self_yield_to(to);
        if (error == ABT_SUCCESS) ++got_it;
        if (error == ABT_ERR_INV_THREAD) ++refused;
    }
};

TEST(argobots_hand_over, of_two_streams_to_the_same_popped_ult_succeeds_once) {
    const program here(1);
    for (int round = 0; round < 200; ++round) {
        std::atomic<int> ran{0};
        race both;
        ASSERT_EQ(ABT_thread_create(
                      here.pool, [](void* times) { ++*static_cast<std::atomic<int>*>(times); },
                      &ran, nullptr, &both.to),
                  ABT_SUCCESS);
        ABT_thread popped = nullptr;
        ASSERT_EQ(ABT_pool_pop_thread(here.pool, &popped), ABT_SUCCESS);
        ASSERT_EQ(popped, both.to);
        ABT_thread other = nullptr;
        ASSERT_EQ(ABT_thread_create(
                      here.pool_of(0), [](void* of) { static_cast<race*>(of)->run(); }, &both,
                      nullptr, &other),
                  ABT_SUCCESS);
        both.run();
        ASSERT_EQ(ABT_thread_free(&other), ABT_SUCCESS);
        ASSERT_EQ(ABT_thread_free(&popped), ABT_SUCCESS);
        ASSERT_EQ(both.got_it, 1);
        ASSERT_EQ(both.refused, 1);
        ASSERT_EQ(ran, 1);
    }
}

TEST(argobots_hand_over, is_possible_to_what_each_kind_of_pop_has_taken_out) {
    const program here;
    for (int kind = 0; kind < 5; ++kind) {
        int ran = 0;
        ABT_thread made = nullptr;
        ASSERT_EQ(
            ABT_thread_create(
                here.pool, [](void* times) { ++*static_cast<int*>(times); }, &ran, nullptr, &made),
            ABT_SUCCESS);
        ABT_unit unit = ABT_UNIT_NULL;
        ABT_thread popped = nullptr;
        size_t number = 0;
        ASSERT_EQ(ABT_thread_get_unit(made, &unit), ABT_SUCCESS);
        const int error = kind == 0   ? ABT_pool_pop_thread(here.pool, &popped)
                          : kind == 1 ? ABT_pool_pop_threads(here.pool, &popped, 1, &number)
                          : kind == 2 ? ABT_pool_pop_wait_thread(here.pool, &popped, 0.01)
                          : kind == 3 ? ABT_pool_pop(here.pool, &unit)
                                      : ABT_pool_remove(here.pool, unit);
        ASSERT_EQ(error, ABT_SUCCESS) << kind;
        ABT_thread_state told = ABT_THREAD_STATE_RUNNING;
        ASSERT_EQ(ABT_thread_get_state(made, &told), ABT_SUCCESS);
        EXPECT_EQ(told, ABT_THREAD_STATE_READY);
        EXPECT_EQ(ABT_self_yield_to(made), ABT_SUCCESS) << kind;
        EXPECT_EQ(ran, 1) << kind;
        ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    }
}

}  // namespace
}  // namespace amalgam::argobots_testing
