#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "abt_testing.hpp"

// ULTs that are told to move to a stream or pool which ends before they do.
namespace amalgam::argobots_testing {
namespace {

/// A ULT of the primary stream that is suspended, and notes the rank on which it goes on.
class suspended_ult {
public:
    explicit suspended_ult(ABT_pool pool) {
        EXPECT_EQ(ABT_thread_create(
                      pool,
                      [](void* rank) {
                          ABT_self_suspend();
                          ABT_self_get_xstream_rank(static_cast<int*>(rank));
                      },
                      &rank_, nullptr, &handle),
                  ABT_SUCCESS);
        ABT_thread_yield();
    }
    int goes_on() {
        EXPECT_EQ(ABT_thread_resume(handle), ABT_SUCCESS);
        EXPECT_EQ(ABT_thread_free(&handle), ABT_SUCCESS);
        return rank_;
    }

    ABT_thread handle = nullptr;

private:
    int rank_ = -1;
};

using migrate_function = int (*)(ABT_thread, ABT_xstream);

int to_any(ABT_thread who, ABT_xstream) {
    return ABT_thread_migrate(who);
}

int to_sched(ABT_thread who, ABT_xstream goal) {
    ABT_sched its = nullptr;
    EXPECT_EQ(ABT_xstream_get_main_sched(goal, &its), ABT_SUCCESS);
    return ABT_thread_migrate_to_sched(who, its);
}

int to_pool(ABT_thread who, ABT_xstream goal) {
    ABT_pool its = nullptr;
    EXPECT_EQ(ABT_xstream_get_main_pools(goal, 1, &its), ABT_SUCCESS);
    return ABT_thread_migrate_to_pool(who, its);
}

TEST(argobots_migration, to_a_stream_that_has_been_freed_since_leaves_the_ult_where_it_is) {
    for (const migrate_function migrate :
         {&to_any, &ABT_thread_migrate_to_xstream, &to_sched, &to_pool}) {
        const program here;
        ABT_xstream goal = nullptr;
        ASSERT_EQ(ABT_xstream_create(nullptr, &goal), ABT_SUCCESS);
        suspended_ult moves(here.pool);
        ASSERT_EQ(migrate(moves.handle, goal), ABT_SUCCESS);
        ASSERT_EQ(ABT_xstream_free(&goal), ABT_SUCCESS);
        // Perhaps where the other one was.
        ABT_pool next = nullptr;
        ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &next),
                  ABT_SUCCESS);
        EXPECT_EQ(moves.goes_on(), 0);
        ASSERT_EQ(ABT_pool_free(&next), ABT_SUCCESS);
    }
}

TEST(argobots_migration, to_a_stream_that_has_been_joined_since_leaves_the_ult_where_it_is) {
    const program here(1);
    suspended_ult moves(here.pool);
    ASSERT_EQ(ABT_thread_migrate_to_xstream(moves.handle, here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_join(here.streams[0]), ABT_SUCCESS);
    EXPECT_EQ(moves.goes_on(), 0);
}

TEST(argobots_migration, to_a_stream_that_has_been_revived_since_is_done) {
    const program here(1);
    suspended_ult moves(here.pool);
    ASSERT_EQ(ABT_thread_migrate_to_xstream(moves.handle, here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_join(here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_revive(here.streams[0]), ABT_SUCCESS);
    EXPECT_EQ(moves.goes_on(), 1);
}

TEST(argobots_migration, to_a_pool_whose_stream_has_ended_before_is_done) {
    const program here(1);
    ASSERT_EQ(ABT_xstream_join(here.streams[0]), ABT_SUCCESS);
    suspended_ult moves(here.pool);
    ASSERT_EQ(to_pool(moves.handle, here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(moves.handle), ABT_SUCCESS);
    ABT_thread moved = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(here.pool_of(0), &moved), ABT_SUCCESS);
    EXPECT_EQ(moved, moves.handle);
    ASSERT_EQ(ABT_pool_push_thread(here.pool, moved), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&moves.handle), ABT_SUCCESS);
}

TEST(argobots_migration, to_a_stream_that_is_being_joined_loses_no_ult) {
    const program here;
    for (int round = 0; round < 200; ++round) {
        ABT_xstream goal = nullptr;
        ASSERT_EQ(ABT_xstream_create(nullptr, &goal), ABT_SUCCESS);
        suspended_ult moves(here.pool);
        ASSERT_EQ(ABT_thread_migrate_to_xstream(moves.handle, goal), ABT_SUCCESS);
        std::atomic<bool> begun{false};
        std::thread frees([&] {
            begun = true;
            EXPECT_EQ(ABT_xstream_free(&goal), ABT_SUCCESS);
        });
        while (!begun) {
        }
        EXPECT_GE(moves.goes_on(), 0);
        frees.join();
    }
}

TEST(argobots_migration, a_pool_to_which_the_ult_of_the_callback_moves_is_not_freed) {
    const program here(1);
    ABT_pool goal = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &goal),
              ABT_SUCCESS);
    struct from_callback {
        ABT_pool goal;
        int error = -1;
    } what{goal};
    suspended_ult moves(here.pool);
    ASSERT_EQ(ABT_thread_set_callback(
                  moves.handle,
                  [](ABT_thread, void* arg) {
                      auto& mine = *static_cast<from_callback*>(arg);
                      ABT_pool its = mine.goal;
                      mine.error = ABT_pool_free(&its);
                  },
                  &what),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_migrate_to_pool(moves.handle, goal), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(moves.handle), ABT_SUCCESS);
    EXPECT_EQ(what.error, ABT_ERR_POOL);
    ABT_thread moved = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(goal, &moved), ABT_SUCCESS);
    ASSERT_EQ(moved, moves.handle);
    ASSERT_EQ(ABT_pool_push_thread(here.pool, moved), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&moves.handle), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&goal), ABT_SUCCESS);
}

}  // namespace
}  // namespace amalgam::argobots_testing
