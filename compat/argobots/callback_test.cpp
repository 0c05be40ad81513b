#include <atomic>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include "abt_testing.hpp"

// Exceptions out of the program's functions: none ends the process, or becomes an error number.
namespace amalgam::argobots_testing {
namespace {

void do_nothing(void*) {}

TEST(argobots_callback, of_a_future_that_throws_leaves_it_ready) {
    const program here;
    logged_lines lines;
    ABT_future future = nullptr;
    ASSERT_EQ(ABT_future_create(
                  1, [](void**) { throw std::runtime_error("too late"); }, &future),
              ABT_SUCCESS);
    EXPECT_EQ(ABT_future_set(future, nullptr), ABT_SUCCESS);
    EXPECT_EQ(ABT_future_wait(future), ABT_SUCCESS);
    EXPECT_EQ(ABT_future_set(future, nullptr), ABT_ERR_FUTURE);
    EXPECT_TRUE(lines.have("a future's callback"));
    EXPECT_TRUE(lines.have("too late"));
    ASSERT_EQ(ABT_future_free(&future), ABT_SUCCESS);
}

TEST(argobots_callback, of_a_key_that_throws_lets_the_other_destructors_run) {
    const program here;
    logged_lines lines;
    static int destroyed = 0;
    destroyed = 0;
    ABT_key keys[2];
    ASSERT_EQ(ABT_key_create([](void*) { ++destroyed; }, &keys[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_key_create([](void*) { throw 6; }, &keys[1]), ABT_SUCCESS);
    run_and_free(
        here.pool,
        [](void* arg) {
            ABT_key_set(static_cast<ABT_key*>(arg)[0], arg);
            ABT_key_set(static_cast<ABT_key*>(arg)[1], arg);
        },
        keys);
    EXPECT_EQ(destroyed, 1);
    EXPECT_TRUE(lines.have("not derived from std::exception"));
    for (ABT_key& each : keys)
        ASSERT_EQ(ABT_key_free(&each), ABT_SUCCESS);
}

TEST(argobots_callback, of_a_migration_that_throws_or_exits_does_not_keep_the_ult) {
    const program here(1);
    for (const bool exits : {false, true}) {
        logged_lines lines;
        const auto throws = [](ABT_thread, void*) { throw 4; };
        const auto leaves = [](ABT_thread, void*) { ABT_thread_exit(); };
        const int rank = exits ? rank_after_migration(here.pool, here.pool_of(0), leaves, nullptr)
                               : rank_after_migration(here.pool, here.pool_of(0), throws, nullptr);
        EXPECT_EQ(rank, 1);
        if (!exits) {
            EXPECT_TRUE(lines.have("a migration callback"));
        }
    }
}

/// What a callback of a migration may not wait for, and what it gets when it tries to.
struct not_there {
    ABT_mutex mutex = nullptr;  ///< Locked.
    ABT_eventual eventual = nullptr;
    ABT_thread suspended = nullptr;
    ABT_xstream stream = nullptr;
    ABT_xstream_barrier barrier = nullptr;
    ABT_pool empty = nullptr;
    int of_mutex = -1;
    int of_eventual = -1;
    int of_join = -1;
    int of_stream = -1;
    int of_free = -1;
    int of_barrier = -1;
    int of_pool = -1;
    ABT_thread popped = nullptr;

    explicit not_there(ABT_pool pool) {
        EXPECT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
        EXPECT_EQ(ABT_mutex_lock(mutex), ABT_SUCCESS);
        EXPECT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
        EXPECT_EQ(ABT_thread_create(
                      pool, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &suspended),
                  ABT_SUCCESS);
        EXPECT_EQ(ABT_xstream_create(nullptr, &stream), ABT_SUCCESS);
        EXPECT_EQ(ABT_xstream_barrier_create(2, &barrier), ABT_SUCCESS);
        EXPECT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &empty),
                  ABT_SUCCESS);
        ABT_thread_yield();
    }
    ~not_there() {
        EXPECT_EQ(of_stream, ABT_ERR_XSTREAM);
        EXPECT_EQ(of_free, ABT_ERR_XSTREAM);
        EXPECT_EQ(of_barrier, ABT_ERR_XSTREAM_BARRIER);
        EXPECT_EQ(of_pool, ABT_SUCCESS);
        EXPECT_EQ(popped, nullptr);
        EXPECT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
        EXPECT_EQ(ABT_xstream_barrier_free(&barrier), ABT_SUCCESS);
        EXPECT_EQ(ABT_pool_free(&empty), ABT_SUCCESS);
        EXPECT_EQ(of_mutex, ABT_ERR_MUTEX);
        EXPECT_EQ(of_eventual, ABT_ERR_EVENTUAL);
        EXPECT_EQ(of_join, ABT_ERR_INV_THREAD);
        EXPECT_EQ(ABT_thread_resume(suspended), ABT_SUCCESS);
        EXPECT_EQ(ABT_thread_free(&suspended), ABT_SUCCESS);
        EXPECT_EQ(ABT_eventual_free(&eventual), ABT_SUCCESS);
        EXPECT_EQ(ABT_mutex_unlock(mutex), ABT_SUCCESS);
        EXPECT_EQ(ABT_mutex_free(&mutex), ABT_SUCCESS);
    }
    static void wait_for_all(ABT_thread, void* which) {
        auto& mine = *static_cast<not_there*>(which);
        mine.of_mutex = ABT_mutex_lock(mine.mutex);
        mine.of_eventual = ABT_eventual_wait(mine.eventual, nullptr);
        mine.of_join = ABT_thread_join(mine.suspended);
        mine.of_stream = ABT_xstream_join(mine.stream);
        ABT_xstream same = mine.stream;
        mine.of_free = ABT_xstream_free(&same);
        mine.of_barrier = ABT_xstream_barrier_wait(mine.barrier);
        constexpr double hour = 3600;
        mine.of_pool = ABT_pool_pop_wait_thread(mine.empty, &mine.popped, hour);
    }
};

TEST(argobots_callback, of_a_migration_gets_an_error_if_it_waits) {
    const program here(1);
    not_there what(here.pool);
    EXPECT_EQ(rank_after_migration(here.pool, here.pool_of(0), &not_there::wait_for_all, &what), 1);
}

// A timer is on the stream's own stack.
TEST(argobots_callback, of_a_migration_at_a_deadline_gets_an_error_if_it_waits) {
    const program here(1);
    logged_lines lines;
    not_there what(here.pool);
    ABT_thread waits = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool,
                  [](void* eventual) {
                      const timespec long_ago{};
                      for (int rank = 0; rank == 0; ABT_self_get_xstream_rank(&rank))
                          ABT_eventual_timedwait(static_cast<ABT_eventual>(eventual), nullptr,
                                                 &long_ago);
                  },
                  what.eventual, nullptr, &waits),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_set_callback(waits, &not_there::wait_for_all, &what), ABT_SUCCESS);
    ABT_thread_yield();
    ASSERT_EQ(ABT_thread_migrate_to_pool(waits, here.pool_of(0)), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&waits), ABT_SUCCESS);
    EXPECT_FALSE(lines.have("an exception escaped"));
}

TEST(argobots_callback, of_a_tool_that_throws_is_told_of_later_events_too) {
    const program here;
    logged_lines lines;
    static int told = 0;
    told = 0;
    ASSERT_EQ(ABT_tool_register_thread_callback(
                  [](ABT_thread, ABT_xstream, uint64_t, ABT_tool_context, void*) {
                      ++told;
                      throw 1;
                  },
                  ABT_TOOL_EVENT_THREAD_CREATE | ABT_TOOL_EVENT_THREAD_FREE, nullptr),
              ABT_SUCCESS);
    run_and_free(here.pool, &do_nothing, nullptr);
    ASSERT_EQ(ABT_tool_register_thread_callback(nullptr, 0, nullptr), ABT_SUCCESS);
    EXPECT_EQ(told, 2);
    EXPECT_TRUE(lines.have("a tool's callback"));
}

TEST(argobots_callback, of_a_scheduler_that_throws_becomes_an_error_or_a_line) {
    const program here;
    logged_lines lines;
    ABT_sched_def functions{};
    functions.run = [](ABT_sched) {};
    functions.free = [](ABT_sched) -> int { throw 33; };
    functions.get_migr_pool = [](ABT_sched) -> ABT_pool { throw 34; };
    ABT_sched sched = nullptr;
    ASSERT_EQ(ABT_sched_create(&functions, 1, nullptr, nullptr, &sched), ABT_SUCCESS);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(here.pool, &do_nothing, nullptr, nullptr, &made), ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_migrate_to_sched(made, sched), ABT_ERR_MIGRATION_TARGET);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ABT_sched_free(&sched), ABT_SUCCESS);
    EXPECT_TRUE(lines.have("free() of a scheduler"));
    EXPECT_TRUE(lines.have("get_migr_pool() of a scheduler"));
}

TEST(argobots_callback, of_a_print_that_throws_is_an_error) {
    const program here;
    logged_lines lines;
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(here.pool, &do_nothing, nullptr, nullptr, &made), ABT_SUCCESS);
    EXPECT_EQ(ABT_pool_print_all_threads(here.pool, nullptr, [](void*, ABT_thread) { throw 2; }),
              ABT_ERR_OTHER);
    EXPECT_EQ(ABT_pool_print_all(here.pool, nullptr, [](void*, ABT_unit) { throw 2; }),
              ABT_ERR_OTHER);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
}

/// What pop and push of a pool get which lock a mutex that is locked.
struct locking_pool {
    static inline ABT_mutex mutex = nullptr;
    static inline ABT_thread held = nullptr;
    static inline std::atomic<int> of_pop = -1;
    static inline std::atomic<int> of_push = -1;

    static ABT_thread pop(ABT_pool, ABT_pool_context) {
        of_pop = ABT_mutex_lock(mutex);
        return std::exchange(held, nullptr);
    }
    static void push(ABT_pool, ABT_unit unit, ABT_pool_context) {
        of_push = ABT_mutex_lock(mutex);
        held = reinterpret_cast<ABT_thread>(unit);
    }
    static ABT_pool made() {
        ABT_pool_user_def functions = nullptr;
        EXPECT_EQ(
            ABT_pool_user_def_create(
                [](ABT_pool, ABT_thread who) { return reinterpret_cast<ABT_unit>(who); },
                [](ABT_pool, ABT_unit) {}, [](ABT_pool) -> ABT_bool { return held == nullptr; },
                &pop, &push, &functions),
            ABT_SUCCESS);
        ABT_pool pool = nullptr;
        EXPECT_EQ(ABT_pool_create(functions, nullptr, &pool), ABT_SUCCESS);
        EXPECT_EQ(ABT_pool_user_def_free(&functions), ABT_SUCCESS);
        return pool;
    }
};

TEST(argobots_callback, of_a_pool_that_would_wait_for_a_mutex_gets_an_error) {
    const program here;
    ABT_pool pool = locking_pool::made();
    ASSERT_EQ(ABT_mutex_create(&locking_pool::mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_lock(locking_pool::mutex), ABT_SUCCESS);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(pool, &do_nothing, nullptr, nullptr, &made), ABT_SUCCESS);
    EXPECT_EQ(locking_pool::of_push, ABT_ERR_MUTEX);
    ABT_thread same = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(pool, &same), ABT_SUCCESS);
    EXPECT_EQ(same, made);
    EXPECT_EQ(locking_pool::of_pop, ABT_ERR_MUTEX);
    ASSERT_EQ(ABT_pool_push_thread(here.pool, same), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_unlock(locking_pool::mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_free(&locking_pool::mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&pool), ABT_SUCCESS);
}

/// A pool whose functions all throw once armed.
struct throwing_pool {
    static inline bool armed = false;
    static inline ABT_thread held = nullptr;
    static void maybe() {
        if (armed) throw 3;
    }
    static ABT_pool made() {
        ABT_pool_user_def functions = nullptr;
        EXPECT_EQ(ABT_pool_user_def_create(
                      [](ABT_pool, ABT_thread who) {
                          maybe();
                          return reinterpret_cast<ABT_unit>(who);
                      },
                      [](ABT_pool, ABT_unit) { maybe(); },
                      [](ABT_pool) -> ABT_bool {
                          maybe();
                          return held == nullptr;
                      },
                      [](ABT_pool, ABT_pool_context) {
                          maybe();
                          return std::exchange(held, nullptr);
                      },
                      [](ABT_pool, ABT_unit unit, ABT_pool_context) {
                          maybe();
                          held = reinterpret_cast<ABT_thread>(unit);
                      },
                      &functions),
                  ABT_SUCCESS);
        EXPECT_EQ(ABT_pool_user_def_set_free(functions, [](ABT_pool) { maybe(); }), ABT_SUCCESS);
        ABT_pool pool = nullptr;
        EXPECT_EQ(ABT_pool_create(functions, nullptr, &pool), ABT_SUCCESS);
        EXPECT_EQ(ABT_pool_user_def_free(&functions), ABT_SUCCESS);
        return pool;
    }
};

TEST(argobots_callback, of_a_pool_that_throws_becomes_an_error_or_a_line) {
    const program here;
    logged_lines lines;
    ABT_pool pool = throwing_pool::made();
    throwing_pool::armed = true;
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(pool, &do_nothing, nullptr, nullptr, &made), ABT_ERR_OTHER);
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(ABT_pool_pop_thread(pool, &made), ABT_SUCCESS);
    EXPECT_EQ(made, nullptr);
    ABT_bool empty = ABT_FALSE;
    EXPECT_EQ(ABT_pool_is_empty(pool, &empty), ABT_SUCCESS);
    throwing_pool::armed = false;
    ASSERT_EQ(ABT_thread_create(pool, &do_nothing, nullptr, nullptr, &made), ABT_SUCCESS);
    ABT_thread same = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(pool, &same), ABT_SUCCESS);
    EXPECT_EQ(same, made);
    throwing_pool::armed = true;
    ASSERT_EQ(ABT_pool_push_thread(here.pool, same), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ABT_pool_free(&pool), ABT_SUCCESS);
    throwing_pool::armed = false;
    EXPECT_TRUE(lines.have("pop() of a pool"));
    EXPECT_TRUE(lines.have("create_unit() of a pool"));
    EXPECT_TRUE(lines.have("free() of a pool"));
}

/// Creates a scheduler on an automatic pool that fails; the pool is the caller's again.
void fail_to_create(int (*init)(ABT_sched, ABT_sched_config), int error) {
    const program here;
    ABT_pool pools[2] = {};
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_TRUE, &pools[0]),
              ABT_SUCCESS);
    ABT_sched_def functions{};
    functions.init = init;
    functions.run = [](ABT_sched) {};
    functions.free = [](ABT_sched) -> int {
        ADD_FAILURE() << "what was not begun is not freed";
        return 0;
    };
    ABT_sched sched = nullptr;
    EXPECT_EQ(ABT_sched_create(&functions, 2, pools, nullptr, &sched), error);
    EXPECT_EQ(sched, nullptr);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(pools[0], &do_nothing, nullptr, nullptr, &made), ABT_SUCCESS);
    ABT_thread same = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(pools[0], &same), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_push_thread(here.pool, same), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ABT_pool_free(&pools[0]), ABT_SUCCESS);
}

TEST(argobots_callback, a_scheduler_whose_init_fails_leaves_its_pools_to_their_owner) {
    fail_to_create([](ABT_sched, ABT_sched_config) { return 33; }, 33);
}

TEST(argobots_callback, a_scheduler_whose_init_throws_leaves_its_pools_to_their_owner) {
    const logged_lines quiet;
    fail_to_create([](ABT_sched, ABT_sched_config) -> int { throw 33; }, ABT_ERR_OTHER);
}

}  // namespace
}  // namespace amalgam::argobots_testing
