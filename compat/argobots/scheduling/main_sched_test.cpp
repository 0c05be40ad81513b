#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "abt_testing.hpp"

// Main schedulers that are replaced, or asked to end, while there is more to run.
namespace amalgam::argobots_testing {
namespace {

ABT_pool new_pool(ABT_pool_access access, ABT_bool automatic = ABT_TRUE) {
    ABT_pool made = nullptr;
    EXPECT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, access, automatic, &made), ABT_SUCCESS);
    return made;
}

int use_pool(ABT_pool pool) {
    ABT_xstream here = nullptr;
    EXPECT_EQ(ABT_self_get_xstream(&here), ABT_SUCCESS);
    return ABT_xstream_set_main_sched_basic(here, ABT_SCHED_BASIC, 1, &pool);
}

constexpr ABT_pool_access kinds_of_access[] = {ABT_POOL_ACCESS_PRIV, ABT_POOL_ACCESS_MPMC};

void yield_and_count(void* arg) {
    for (int i = 0; i < 3; ++i)
        ABT_thread_yield();
    ++*static_cast<std::atomic<int>*>(arg);
}

TEST(argobots_main_sched, what_is_queued_runs_before_it_is_replaced_by_the_primary_ult) {
    for (const ABT_pool_access access : kinds_of_access) {
        const program here;
        ABT_pool const first = new_pool(access);
        ASSERT_EQ(use_pool(first), ABT_SUCCESS);
        std::atomic<int> ran{0};
        for (int i = 0; i < 6; ++i)
            ASSERT_EQ(ABT_thread_create(first, yield_and_count, &ran, nullptr, nullptr),
                      ABT_SUCCESS);
        ASSERT_EQ(use_pool(new_pool(access)), ABT_SUCCESS);
        EXPECT_EQ(ran, 6);
    }
}

TEST(argobots_main_sched, what_is_queued_runs_before_it_is_replaced_by_one_of_its_ults) {
    for (const ABT_pool_access access : kinds_of_access) {
        const program here;
        ABT_pool pool = new_pool(access, ABT_FALSE);  // who joins looks at it
        ABT_xstream stream = nullptr;
        ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &stream),
                  ABT_SUCCESS);
        struct seen {
            std::atomic<int> ran{0};
            std::atomic<bool> go{false};
            ABT_pool_access access;
            int before = -1;
        } what;
        what.access = access;
        ASSERT_EQ(ABT_thread_create(
                      pool,
                      [](void* arg) {
                          while (!static_cast<seen*>(arg)->go)
                              std::this_thread::yield();
                      },
                      &what, nullptr, nullptr),
                  ABT_SUCCESS);
        ABT_thread replaces = nullptr;
        ASSERT_EQ(ABT_thread_create(
                      pool,
                      [](void* arg) {
                          auto& mine = *static_cast<seen*>(arg);
                          EXPECT_EQ(use_pool(new_pool(mine.access)), ABT_SUCCESS);
                          mine.before = mine.ran;
                      },
                      &what, nullptr, &replaces),
                  ABT_SUCCESS);
        for (int i = 0; i < 6; ++i)
            ASSERT_EQ(ABT_thread_create(pool, yield_and_count, &what.ran, nullptr, nullptr),
                      ABT_SUCCESS);
        what.go = true;
        ASSERT_EQ(ABT_thread_free(&replaces), ABT_SUCCESS);
        EXPECT_EQ(what.before, 6);
        ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
        ASSERT_EQ(ABT_pool_free(&pool), ABT_SUCCESS);
    }
}

TEST(argobots_main_sched, what_waits_in_a_pool_that_the_next_one_has_does_not_hold_it_up) {
    const program here;
    ABT_pool const kept = new_pool(ABT_POOL_ACCESS_MPMC);
    ASSERT_EQ(use_pool(kept), ABT_SUCCESS);
    ABT_thread waits = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  kept, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &waits),
              ABT_SUCCESS);
    ABT_thread_yield();
    ASSERT_EQ(use_pool(kept), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(waits), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&waits), ABT_SUCCESS);
}

void wait_for_end_of(ABT_xstream stream) {
    ABT_xstream_state state = ABT_XSTREAM_STATE_RUNNING;
    while (state != ABT_XSTREAM_STATE_TERMINATED) {
        std::this_thread::yield();
        ASSERT_EQ(ABT_xstream_get_state(stream, &state), ABT_SUCCESS);
    }
}

struct chain {
    ABT_pool pool = nullptr;
    std::atomic<bool> stop{false};
};

void create_next(void* arg) {
    auto& mine = *static_cast<chain*>(arg);
    if (!mine.stop) ABT_thread_create(mine.pool, create_next, arg, nullptr, nullptr);
}

TEST(argobots_main_sched, one_that_is_to_exit_does_so_though_units_keep_creating_others) {
    for (const ABT_pool_access access : kinds_of_access) {
        const program here;
        chain units;
        units.pool = new_pool(access);
        ABT_xstream stream = nullptr;
        ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &units.pool, nullptr, &stream),
                  ABT_SUCCESS);
        create_next(&units);
        ABT_sched sched = nullptr;
        ASSERT_EQ(ABT_xstream_get_main_sched(stream, &sched), ABT_SUCCESS);
        ASSERT_EQ(ABT_sched_exit(sched), ABT_SUCCESS);
        wait_for_end_of(stream);
        units.stop = true;
        ASSERT_EQ(ABT_xstream_join(stream), ABT_SUCCESS);
        ASSERT_EQ(ABT_xstream_revive(stream), ABT_SUCCESS);  // which runs what is left
        ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
    }
}

ABT_sched main_sched_of(ABT_xstream stream) {
    ABT_sched sched = nullptr;
    EXPECT_EQ(ABT_xstream_get_main_sched(stream, &sched), ABT_SUCCESS);
    return sched;
}

TEST(argobots_main_sched, one_that_is_to_finish_is_woken) {
    const program here(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it sleeps, as it may
    ASSERT_EQ(ABT_sched_finish(main_sched_of(here.streams[0])), ABT_SUCCESS);
    wait_for_end_of(here.streams[0]);
}

TEST(argobots_main_sched, what_is_pushed_where_one_has_ended_wakes_another) {
    const program here;
    ABT_pool pool = new_pool(ABT_POOL_ACCESS_MPMC, ABT_FALSE);
    ABT_xstream streams[2] = {};
    for (ABT_xstream& each : streams)
        ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &each), ABT_SUCCESS);
    ASSERT_EQ(ABT_sched_exit(main_sched_of(streams[0])), ABT_SUCCESS);
    wait_for_end_of(streams[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that both sleep, as they may
    run_and_free(
        pool, [](void*) {}, nullptr);
    for (ABT_xstream& each : streams)
        ASSERT_EQ(ABT_xstream_free(&each), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&pool), ABT_SUCCESS);
}

std::chrono::microseconds time_on_cpu() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto one = [](const timeval& time) {
        return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
    };
    return one(used.ru_utime) + one(used.ru_stime);
}

TEST(argobots_main_sched, one_that_has_ended_rests_though_units_are_left) {
    const program here(1);
    ASSERT_EQ(ABT_sched_exit(main_sched_of(here.streams[0])), ABT_SUCCESS);
    wait_for_end_of(here.streams[0]);
    ABT_task left = nullptr;
    ASSERT_EQ(ABT_task_create(
                  here.pool_of(0), [](void*) {}, nullptr, &left),
              ABT_SUCCESS);
    const auto before = time_on_cpu();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(time_on_cpu() - before, std::chrono::milliseconds(100));
    ASSERT_EQ(ABT_xstream_join(here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_revive(here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&left), ABT_SUCCESS);
}

TEST(argobots_main_sched, one_whose_first_pool_has_no_unit_for_its_caller_is_refused) {
    const program here;
    ABT_pool_user_def functions = nullptr;
    ASSERT_EQ(ABT_pool_user_def_create(
                  [](ABT_pool, ABT_thread) -> ABT_unit { return nullptr; },
                  [](ABT_pool, ABT_unit) {}, [](ABT_pool) -> ABT_bool { return ABT_TRUE; },
                  [](ABT_pool, ABT_pool_context) -> ABT_thread { return nullptr; },
                  [](ABT_pool, ABT_unit, ABT_pool_context) {}, &functions),
              ABT_SUCCESS);
    ABT_pool barren = nullptr;
    ASSERT_EQ(ABT_pool_create(functions, nullptr, &barren), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_user_def_free(&functions), ABT_SUCCESS);
    EXPECT_EQ(use_pool(barren), ABT_ERR_OTHER);
    run_and_free(
        here.pool, [](void*) {}, nullptr);
    ASSERT_EQ(use_pool(new_pool(ABT_POOL_ACCESS_MPMC)), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&barren), ABT_SUCCESS);
}

TEST(argobots_main_sched, one_is_replaced_while_others_join_units_of_its_pools) {
    const program here(2);
    for (int i = 0; i < 200; ++i) {
        static std::atomic<bool> runs;
        runs = false;
        const auto replace = [](void*) {
            runs = true;
            EXPECT_EQ(use_pool(new_pool(ABT_POOL_ACCESS_MPMC)), ABT_SUCCESS);
        };
        ABT_thread replaces = nullptr;
        ASSERT_EQ(ABT_thread_create(here.pool_of(0), replace, nullptr, nullptr, &replaces),
                  ABT_SUCCESS);
        while (!runs)
            std::this_thread::yield();
        ASSERT_EQ(ABT_thread_free(&replaces), ABT_SUCCESS);
    }
}

}  // namespace
}  // namespace amalgam::argobots_testing
