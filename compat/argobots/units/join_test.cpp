#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "abt_testing.hpp"

// Several callers join the same ULT; suspended ones are resumed.
namespace amalgam::argobots_testing {
namespace {

ABT_thread_state state_of(ABT_thread which) {
    ABT_thread_state now = ABT_THREAD_STATE_TERMINATED;
    EXPECT_EQ(ABT_thread_get_state(which, &now), ABT_SUCCESS);
    return now;
}

/// Yields until `which` waits.
void let_wait(ABT_thread which) {
    while (state_of(which) != ABT_THREAD_STATE_BLOCKED) {
        ABT_thread_yield();
        std::this_thread::yield();
    }
}

struct joiner {
    ABT_thread of = nullptr;
    ABT_thread ult = nullptr;
    int result = -1;
};

void join_in_ult(ABT_pool pool, joiner& one) {
    ASSERT_EQ(ABT_thread_create(
                  pool,
                  [](void* arg) {
                      auto& mine = *static_cast<joiner*>(arg);
                      mine.result = ABT_thread_join(mine.of);
                  },
                  &one, nullptr, &one.ult),
              ABT_SUCCESS);
}

ABT_thread suspended_in(ABT_pool pool) {
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(
                  pool, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &made),
              ABT_SUCCESS);
    let_wait(made);
    return made;
}

TEST(argobots_join, all_joiners_of_a_ult_wait_for_its_end) {
    const program here(2);
    for (int round = 0; round < 20; ++round) {
        ABT_thread const target = suspended_in(here.pool);
        joiner ults[4];
        for (int i = 0; i < 4; ++i) {
            ults[i].of = target;
            join_in_ult(here.pool_of(static_cast<std::size_t>(i) % 2), ults[i]);
        }
        std::atomic<int> joined{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([&] { joined += ABT_thread_join(target) == ABT_SUCCESS ? 1 : 0; });
        for (const joiner& each : ults)
            let_wait(each.ult);
        EXPECT_EQ(joined, 0);
        while (ABT_thread_resume(target) != ABT_SUCCESS)
            ABT_thread_yield();
        for (joiner& each : ults) {
            ASSERT_EQ(ABT_thread_free(&each.ult), ABT_SUCCESS);
            EXPECT_EQ(each.result, ABT_SUCCESS);
        }
        for (std::thread& each : threads)
            each.join();
        EXPECT_EQ(joined, 2);
        ABT_thread gone = target;
        ASSERT_EQ(ABT_thread_free(&gone), ABT_SUCCESS);
    }
}

TEST(argobots_join, each_joiner_is_told_by_the_end_whatever_the_first_one_does) {
    const program here(1);
    ABT_thread target = suspended_in(here.pool);
    joiner first;
    first.of = target;
    join_in_ult(here.pool_of(0), first);
    let_wait(first.ult);
    struct seen {
        std::atomic<bool> begun{false};
        std::atomic<bool> told{false};
        bool told_first = false;
    } what;
    ABT_thread keeps_it_busy = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool_of(0),
                  [](void* arg) {
                      auto& mine = *static_cast<seen*>(arg);
                      mine.begun = true;
                      for (int i = 0; i < 3000 && !mine.told; ++i)
                          std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      mine.told_first = mine.told;
                  },
                  &what, nullptr, &keeps_it_busy),
              ABT_SUCCESS);
    while (!what.begun)
        std::this_thread::yield();
    joiner second;
    second.of = target;
    join_in_ult(here.pool, second);
    let_wait(second.ult);
    ASSERT_EQ(ABT_thread_resume(target), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&second.ult), ABT_SUCCESS);
    EXPECT_EQ(second.result, ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_join(target), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&target), ABT_SUCCESS);  // the first one has not gone on yet
    what.told = true;
    ASSERT_EQ(ABT_thread_free(&keeps_it_busy), ABT_SUCCESS);
    EXPECT_TRUE(what.told_first);
    ASSERT_EQ(ABT_thread_free(&first.ult), ABT_SUCCESS);
    EXPECT_EQ(first.result, ABT_SUCCESS);
}

TEST(argobots_join, free_waits_for_those_who_join) {
    const program here;
    ABT_thread target = suspended_in(here.pool);
    joiner ults[3];
    for (joiner& each : ults) {
        each.of = target;
        join_in_ult(here.pool, each);
        let_wait(each.ult);
    }
    ASSERT_EQ(ABT_thread_resume(target), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&target), ABT_SUCCESS);
    for (joiner& each : ults) {
        ASSERT_EQ(ABT_thread_free(&each.ult), ABT_SUCCESS);
        EXPECT_EQ(each.result, ABT_SUCCESS);
    }
}

/// A ULT of the same stream joins the target, which has ended; the tool that it was to tell has
/// left.
void let_tool_leave_joiner(ABT_pool pool, ABT_thread target, joiner& one) {
    const auto ignore = [](ABT_thread, ABT_xstream, std::uint64_t, ABT_tool_context, void*) {};
    ASSERT_EQ(ABT_tool_register_thread_callback(ignore, ABT_TOOL_EVENT_THREAD_ALL, nullptr),
              ABT_SUCCESS);
    one.of = target;
    join_in_ult(pool, one);
    let_wait(one.ult);
    ASSERT_EQ(ABT_tool_register_thread_callback(nullptr, 0, nullptr), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(target), ABT_SUCCESS);
}

TEST(argobots_join,
     a_ult_is_freed_or_revived_though_the_tool_has_left_that_its_joiner_was_to_tell) {
    const program here;
    ABT_thread target = suspended_in(here.pool);
    joiner first;
    let_tool_leave_joiner(here.pool, target, first);
    while (state_of(target) != ABT_THREAD_STATE_TERMINATED)
        ABT_thread_yield();
    ASSERT_EQ(ABT_thread_revive(
                  here.pool, [](void*) { ABT_self_suspend(); }, nullptr, &target),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&first.ult), ABT_SUCCESS);
    let_wait(target);
    joiner second;
    let_tool_leave_joiner(here.pool, target, second);
    ASSERT_EQ(ABT_thread_free(&target), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&second.ult), ABT_SUCCESS);
    EXPECT_EQ(first.result, ABT_SUCCESS);
    EXPECT_EQ(second.result, ABT_SUCCESS);
}

TEST(argobots_join, who_joins_twice_or_a_list_that_others_join_gets_success) {
    const program here(1);
    ABT_thread both[2] = {suspended_in(here.pool), suspended_in(here.pool)};
    ABT_thread twice[3] = {both[0], both[1], both[0]};
    joiner other;
    other.of = both[1];
    join_in_ult(here.pool_of(0), other);
    let_wait(other.ult);
    ASSERT_EQ(ABT_thread_resume(both[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(both[1]), ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_join_many(3, twice), ABT_SUCCESS);
    EXPECT_EQ(ABT_task_join(both[1]), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&other.ult), ABT_SUCCESS);
    EXPECT_EQ(other.result, ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free_many(2, both), ABT_SUCCESS);
}

TEST(argobots_join, a_ult_is_revived_though_others_still_return_from_its_join) {
    const program here;
    ABT_thread target = suspended_in(here.pool);
    joiner ults[2];
    for (joiner& each : ults) {
        each.of = target;
        join_in_ult(here.pool, each);
        let_wait(each.ult);
    }
    ASSERT_EQ(ABT_thread_resume(target), ABT_SUCCESS);
    while (state_of(target) != ABT_THREAD_STATE_TERMINATED)
        ABT_thread_yield();
    int ran = 0;
    ASSERT_EQ(ABT_thread_revive(
                  here.pool, [](void* arg) { ++*static_cast<int*>(arg); }, &ran, &target),
              ABT_SUCCESS);
    for (joiner& each : ults)
        ASSERT_EQ(ABT_thread_free(&each.ult), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&target), ABT_SUCCESS);
    EXPECT_EQ(ran, 1);
}

// Neither before nor after does it look blocked when there is nothing to resume.
TEST(argobots_suspend, a_ult_that_is_told_as_blocked_can_be_resumed) {
    const program here(1);
    for (int round = 0; round < 3000; ++round) {
        ABT_thread made = nullptr;
        ASSERT_EQ(ABT_thread_create(
                      here.pool_of(0),
                      [](void*) {
                          for (int i = 0; i < 3; ++i)
                              ABT_self_suspend();
                      },
                      nullptr, nullptr, &made),
                  ABT_SUCCESS);
        for (int i = 0; i < 3; ++i) {
            while (state_of(made) != ABT_THREAD_STATE_BLOCKED) {
            }
            ASSERT_EQ(ABT_thread_resume(made), ABT_SUCCESS) << round << " " << i;
        }
        ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    }
}

/// What a tool is told last, before a ULT is in a pool again.
TEST(argobots_suspend, a_resumed_ult_is_ready_at_once) {
    const program here;
    ABT_thread made = suspended_in(here.pool);
    static ABT_thread_state seen;
    seen = ABT_THREAD_STATE_BLOCKED;
    ASSERT_EQ(ABT_tool_register_thread_callback(
                  [](ABT_thread who, ABT_xstream, std::uint64_t, ABT_tool_context, void*) {
                      ABT_thread_get_state(who, &seen);
                  },
                  ABT_TOOL_EVENT_THREAD_RESUME, nullptr),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(made), ABT_SUCCESS);
    EXPECT_EQ(seen, ABT_THREAD_STATE_READY);
    EXPECT_EQ(ABT_thread_resume(made), ABT_ERR_THREAD);
    ASSERT_EQ(ABT_tool_register_thread_callback(nullptr, 0, nullptr), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
}

TEST(argobots_join, the_ult_of_a_scheduler_is_not_to_be_joined) {
    const program here;
    static ABT_thread its = nullptr;
    its = nullptr;
    ABT_sched_def functions{};
    functions.run = [](ABT_sched) {
        ABT_self_get_thread(&its);
        while (its != nullptr)
            ABT_thread_yield();
    };
    ABT_sched sched = nullptr;
    ABT_pool pool = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_TRUE, &pool),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_sched_create(&functions, 1, &pool, nullptr, &sched), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_add_sched(here.pool, sched), ABT_SUCCESS);
    while (its == nullptr)
        ABT_thread_yield();
    EXPECT_EQ(ABT_thread_join(its), ABT_ERR_INV_THREAD);
    ABT_thread same = its;
    EXPECT_EQ(ABT_thread_free(&same), ABT_ERR_INV_THREAD);
    its = nullptr;
    for (int i = 0; i < 3; ++i)
        ABT_thread_yield();
    ASSERT_EQ(ABT_sched_free(&sched), ABT_SUCCESS);
}

TEST(argobots_join, a_unit_whose_pool_has_ended_is_revived_in_another) {
    program here(1);
    for (int i = 0; i < 2; ++i) {
        ABT_thread made = nullptr;
        ASSERT_EQ(i == 0 ? ABT_thread_create(
                               here.pool_of(0), [](void*) {}, nullptr, nullptr, &made)
                         : ABT_task_create(
                               here.pool_of(0), [](void*) {}, nullptr, &made),
                  ABT_SUCCESS);
        ASSERT_EQ(ABT_thread_join(made), ABT_SUCCESS);
        ASSERT_EQ(ABT_xstream_free(&here.streams[0]), ABT_SUCCESS);
        ASSERT_EQ(ABT_xstream_create(nullptr, &here.streams[0]), ABT_SUCCESS);
        int ran = 0;
        ASSERT_EQ(ABT_thread_revive(
                      here.pool, [](void* arg) { ++*static_cast<int*>(arg); }, &ran, &made),
                  ABT_SUCCESS);
        ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
        EXPECT_EQ(ran, 1);
    }
}

TEST(argobots_suspend, who_was_resumed_to_run_next_forgets_on_which_stream) {
    program here(2);
    struct pair {
        ABT_thread waits = nullptr;
        std::atomic<bool> again{false};
    };
    for (int i = 0; i < 100; ++i) {
        pair both;
        ASSERT_EQ(ABT_thread_create(
                      here.pool_of(0),
                      [](void* arg) {
                          ABT_self_suspend();
                          static_cast<pair*>(arg)->again = true;
                          ABT_self_suspend();
                      },
                      &both, nullptr, &both.waits),
                  ABT_SUCCESS);
        run_and_free(
            here.pool_of(1),
            [](void* arg) {  // maybe before it has parked
                while (ABT_self_resume_yield_to(static_cast<pair*>(arg)->waits) != ABT_SUCCESS)
                    std::this_thread::yield();
            },
            &both);
        while (!both.again)
            std::this_thread::yield();
        ASSERT_EQ(ABT_xstream_free(&here.streams[1]), ABT_SUCCESS);
        while (ABT_thread_resume(both.waits) != ABT_SUCCESS)
            std::this_thread::yield();
        ASSERT_EQ(ABT_thread_free(&both.waits), ABT_SUCCESS);
        ASSERT_EQ(ABT_xstream_create(nullptr, &here.streams[1]), ABT_SUCCESS);
    }
}

}  // namespace
}  // namespace amalgam::argobots_testing
