#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "abt_testing.hpp"
#include "runtime.hpp"

namespace {

using amalgam::argobots_testing::program;
using amalgam::argobots_testing::rank_after_migration;
using amalgam::argobots_testing::run_and_free;

TEST(argobots, calls_before_init_say_that_it_is_uninitialized) {
    ABT_thread self = nullptr;
    EXPECT_EQ(ABT_initialized(), ABT_ERR_UNINITIALIZED);
    EXPECT_EQ(ABT_self_get_thread(&self), ABT_ERR_UNINITIALIZED);
    EXPECT_EQ(ABT_finalize(), ABT_ERR_UNINITIALIZED);
}

TEST(argobots, null_handles_are_refused_with_their_error_number) {
    const program here;
    EXPECT_EQ(ABT_thread_join(nullptr), ABT_ERR_INV_THREAD);
    EXPECT_EQ(ABT_thread_create(nullptr, nullptr, nullptr, nullptr, nullptr), ABT_ERR_INV_POOL);
    EXPECT_EQ(ABT_mutex_lock(nullptr), ABT_ERR_INV_MUTEX);
    EXPECT_EQ(ABT_xstream_join(nullptr), ABT_ERR_INV_XSTREAM);
    EXPECT_EQ(ABT_sched_finish(nullptr), ABT_ERR_INV_SCHED);
}

TEST(argobots, a_plain_thread_has_no_stream_but_may_create_and_join) {
    const program here(1);
    std::thread([&] {
        ABT_xstream stream = nullptr;
        EXPECT_EQ(ABT_self_get_xstream(&stream), ABT_ERR_INV_XSTREAM);
        int ran = 0;
        run_and_free(
            here.pool_of(0), [](void* arg) { ++*static_cast<int*>(arg); }, &ran);
        EXPECT_EQ(ran, 1);
    }).join();
}

TEST(argobots, an_ended_ult_is_revived_with_the_same_handle) {
    const program here;
    int ran = 0;
    const auto count = [](void* arg) { ++*static_cast<int*>(arg); };
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(here.pool, count, &ran, nullptr, &made), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_join(made), ABT_SUCCESS);
    ABT_thread const first = made;
    ASSERT_EQ(ABT_thread_revive(here.pool, count, &ran, &made), ABT_SUCCESS);
    EXPECT_EQ(made, first);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 2);
}

TEST(argobots, a_ult_runs_on_the_stack_it_is_given) {
    const program here;
    std::vector<std::byte> stack(64 * 1024);
    ABT_thread_attr attr = nullptr;
    ASSERT_EQ(ABT_thread_attr_create(&attr), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_attr_set_stack(attr, stack.data(), stack.size()), ABT_SUCCESS);
    void* local = nullptr;
    ABT_thread made = nullptr;
    ASSERT_EQ(
        ABT_thread_create(
            here.pool, [](void* arg) { *static_cast<void**>(arg) = __builtin_frame_address(0); },
            &local, attr, &made),
        ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_attr_free(&attr), ABT_SUCCESS);
    EXPECT_GE(local, static_cast<void*>(stack.data()));
    EXPECT_LT(local, static_cast<void*>(stack.data() + stack.size()));
}

TEST(argobots, exit_ends_a_ult_and_a_canceled_one_never_begins) {
    const program here;
    int steps = 0;
    run_and_free(
        here.pool,
        [](void* arg) {
            ++*static_cast<int*>(arg);
            ABT_self_exit();
            ++*static_cast<int*>(arg);
        },
        &steps);
    EXPECT_EQ(steps, 1);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void* arg) { ++*static_cast<int*>(arg); }, &steps, nullptr, &made),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_cancel(made), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    EXPECT_EQ(steps, 1);
}

TEST(argobots, a_suspended_ult_is_blocked_until_resumed) {
    const program here(1);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool_of(0), [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &made),
              ABT_SUCCESS);
    while (ABT_thread_resume(made) != ABT_SUCCESS)
        ABT_thread_yield();
    ASSERT_EQ(ABT_thread_join(made), ABT_SUCCESS);
    ABT_thread_state state;
    ASSERT_EQ(ABT_thread_get_state(made, &state), ABT_SUCCESS);
    EXPECT_EQ(state, ABT_THREAD_STATE_TERMINATED);
    EXPECT_EQ(ABT_thread_resume(made), ABT_ERR_THREAD);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
}

TEST(argobots, a_user_s_scheduler_runs_what_it_pops_and_gets_control_back) {
    const program here;
    ABT_sched_def functions{};
    functions.run = [](ABT_sched sched) {
        ABT_pool pool;
        ABT_bool stop = ABT_FALSE;
        ABT_sched_get_pools(sched, 1, 0, &pool);
        while (!stop) {
            ABT_thread next = nullptr;
            ABT_pool_pop_thread(pool, &next);
            if (next != nullptr) ABT_self_schedule(next, nullptr);
            ABT_xstream_check_events(sched);
            ABT_sched_has_to_stop(sched, &stop);
        }
    };
    ABT_sched sched = nullptr;
    ASSERT_EQ(ABT_sched_create(&functions, 1, nullptr, nullptr, &sched), ABT_SUCCESS);
    ABT_xstream stream = nullptr;
    ASSERT_EQ(ABT_xstream_create(sched, &stream), ABT_SUCCESS);
    ABT_pool pool = nullptr;
    ASSERT_EQ(ABT_xstream_get_main_pools(stream, 1, &pool), ABT_SUCCESS);
    std::atomic<int> ran{0};
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(ABT_thread_create(
                      pool,
                      [](void* arg) {
                          ABT_thread_yield();
                          ++*static_cast<std::atomic<int>*>(arg);
                      },
                      &ran, nullptr, nullptr),
                  ABT_SUCCESS);
    }
    ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
    EXPECT_EQ(ran, 100);
    ASSERT_EQ(ABT_sched_free(&sched), ABT_SUCCESS);
}

TEST(argobots, a_basic_scheduler_looks_at_private_pools_first) {
    const program here;
    ABT_pool pools[2] = {};
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPSC, ABT_TRUE, &pools[0]),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_PRIV, ABT_TRUE, &pools[1]),
              ABT_SUCCESS);
    ABT_sched sched = nullptr;
    ASSERT_EQ(ABT_sched_create_basic(ABT_SCHED_BASIC, 2, pools, ABT_SCHED_CONFIG_NULL, &sched),
              ABT_SUCCESS);
    ABT_pool told[2] = {};
    ASSERT_EQ(ABT_sched_get_pools(sched, 2, 0, told), ABT_SUCCESS);
    EXPECT_EQ(told[0], pools[0]);  // as they were given
    ABT_xstream primary = nullptr;
    ASSERT_EQ(ABT_self_get_xstream(&primary), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_set_main_sched(primary, sched), ABT_SUCCESS);
    static std::vector<int> order;
    order.clear();
    ABT_thread made[2] = {};
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(ABT_thread_create(
                      pools[i],
                      [](void* which) {
                          order.push_back(which == nullptr ? 1 : 0);
                          ABT_thread_yield();
                          order.push_back(which == nullptr ? 1 : 0);
                      },
                      i == 1 ? nullptr : made, nullptr, &made[i]),
                  ABT_SUCCESS);
    }
    ASSERT_EQ(ABT_thread_free_many(2, made), ABT_SUCCESS);
    EXPECT_EQ(order, (std::vector{1, 1, 0, 0}));
}

TEST(argobots, a_private_pool_loses_nothing_that_other_threads_put_in) {
    const program here;
    ABT_pool pools[2] = {};
    for (ABT_pool& each : pools)
        ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_PRIV, ABT_TRUE, &each),
                  ABT_SUCCESS);
    ABT_sched sched = nullptr;
    ASSERT_EQ(ABT_sched_create_basic(ABT_SCHED_BASIC, 2, pools, ABT_SCHED_CONFIG_NULL, &sched),
              ABT_SUCCESS);
    ABT_xstream stream = nullptr;
    ASSERT_EQ(ABT_xstream_create(sched, &stream), ABT_SUCCESS);
    static std::atomic<int> ran{0};
    ran = 0;
    constexpr int each_makes = 2000;
    const auto count = [](void*) { ++ran; };
    std::vector<std::thread> others;
    for (ABT_pool each : pools) {
        others.emplace_back([each, count] {
            for (int i = 0; i < each_makes; ++i)
                EXPECT_EQ(ABT_thread_create(each, count, nullptr, nullptr, nullptr), ABT_SUCCESS);
        });
        run_and_free(
            each,
            [](void* own) {
                for (int i = 0; i < each_makes; ++i) {
                    ABT_thread_create(
                        static_cast<ABT_pool>(own), [](void*) { ++ran; }, nullptr, nullptr,
                        nullptr);
                    ABT_thread_yield();
                }
            },
            each);
    }
    for (std::thread& each : others)
        each.join();
    ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);  // runs what is left
    EXPECT_EQ(ran, 4 * each_makes);
}

TEST(argobots, a_yield_of_the_primary_ult_runs_all_that_was_ready_before_it) {
    const program here(1);
    int ran = 0;
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(ABT_thread_create(
                      here.pool, [](void* count) { ++*static_cast<int*>(count); }, &ran, nullptr,
                      nullptr),
                  ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_yield(), ABT_SUCCESS);
    EXPECT_EQ(ran, 100);
}

TEST(argobots, finalize_runs_what_the_primary_pools_still_hold) {
    int ran = 0;
    {
        const program here;
        for (int i = 0; i < 10; ++i) {
            ASSERT_EQ(ABT_thread_create(
                          here.pool, [](void* arg) { ++*static_cast<int*>(arg); }, &ran, nullptr,
                          nullptr),
                      ABT_SUCCESS);
        }
    }
    EXPECT_EQ(ran, 10);
}

TEST(argobots, a_ult_migrates_to_the_pool_it_is_told_and_calls_back) {
    const program here(1);
    int calls = 0;
    const auto moved = [](ABT_thread, void* count) { ++*static_cast<int*>(count); };
    EXPECT_EQ(rank_after_migration(here.pool, here.pool_of(0), moved, &calls), 1);
    EXPECT_EQ(calls, 1);
}

TEST(argobots, the_destructor_of_a_key_runs_when_the_ult_is_freed) {
    const program here;
    static int destroyed = 0;
    destroyed = 0;
    ABT_key key = nullptr;
    ASSERT_EQ(ABT_key_create([](void* value) { destroyed += *static_cast<int*>(value); }, &key),
              ABT_SUCCESS);
    static int value = 5;
    run_and_free(
        here.pool, [](void* arg) { ABT_key_set(static_cast<ABT_key>(arg), &value); }, key);
    EXPECT_EQ(destroyed, 5);
    ASSERT_EQ(ABT_key_free(&key), ABT_SUCCESS);
}

TEST(argobots, a_spinning_ult_gets_a_mutex_that_another_of_its_stream_waits_for) {
    const program here(1);
    struct shared {
        ABT_mutex mutex = nullptr;
        std::atomic<bool> begun{false};
        int locked = 0;
    } what;
    ASSERT_EQ(ABT_mutex_create(&what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_lock(what.mutex), ABT_SUCCESS);
    ABT_thread both[2];
    const auto waits = [](void* arg) {
        auto& mine = *static_cast<shared*>(arg);
        ABT_mutex_lock(mine.mutex);
        ++mine.locked;
        ABT_mutex_unlock(mine.mutex);
    };
    const auto spins = [](void* arg) {
        auto& mine = *static_cast<shared*>(arg);
        mine.begun = true;
        ABT_mutex_spinlock(mine.mutex);
        ++mine.locked;
        ABT_mutex_unlock(mine.mutex);
    };
    ASSERT_EQ(ABT_thread_create(here.pool_of(0), waits, &what, nullptr, &both[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_create(here.pool_of(0), spins, &what, nullptr, &both[1]), ABT_SUCCESS);
    while (!what.begun)
        ABT_thread_yield();
    ASSERT_EQ(ABT_mutex_unlock(what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free_many(2, both), ABT_SUCCESS);
    EXPECT_EQ(what.locked, 2);
    ASSERT_EQ(ABT_mutex_free(&what.mutex), ABT_SUCCESS);
}

TEST(argobots, a_wait_for_a_condition_ends_at_its_deadline_with_the_mutex_locked) {
    const program here;
    ABT_mutex mutex = nullptr;
    ABT_cond cond = nullptr;
    ASSERT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_create(&cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_lock(mutex), ABT_SUCCESS);
    const timespec past{1, 0};
    EXPECT_EQ(ABT_cond_timedwait(cond, mutex, &past), ABT_ERR_COND_TIMEDOUT);
    EXPECT_EQ(ABT_mutex_trylock(mutex), ABT_ERR_MUTEX_LOCKED);
    ASSERT_EQ(ABT_mutex_unlock(mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_free(&cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_free(&mutex), ABT_SUCCESS);
}

TEST(argobots, a_wait_until_the_end_of_time_ends_when_it_is_told) {
    const program here(1);
    struct shared {
        ABT_mutex mutex = nullptr;
        ABT_cond cond = nullptr;
        ABT_eventual eventual = nullptr;
        timespec until{};
        int results[2] = {-1, -1};
    } what;
    ASSERT_EQ(ABT_mutex_create(&what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_create(&what.cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_eventual_create(0, &what.eventual), ABT_SUCCESS);
    const auto wait = [](void* arg) {
        auto& mine = *static_cast<shared*>(arg);
        ABT_mutex_lock(mine.mutex);
        mine.results[0] = ABT_cond_timedwait(mine.cond, mine.mutex, &mine.until);
        ABT_mutex_unlock(mine.mutex);
        mine.results[1] = ABT_eventual_timedwait(mine.eventual, nullptr, &mine.until);
    };
    const auto let_wait_or_end = [](ABT_thread which) {
        ABT_thread_state now = ABT_THREAD_STATE_READY;
        while (now != ABT_THREAD_STATE_BLOCKED && now != ABT_THREAD_STATE_TERMINATED) {
            ABT_thread_yield();
            ABT_thread_get_state(which, &now);
        }
    };
    for (const std::time_t seconds :
         {std::numeric_limits<std::time_t>::max(), std::numeric_limits<std::time_t>::max() / 2,
          std::time_t{20'000'000'000}, std::time_t{9'223'372'037}}) {
        what.until = {seconds, 999'999'999};
        ABT_thread made = nullptr;
        // In the same stream: it waits once it is blocked.
        ASSERT_EQ(ABT_thread_create(here.pool, wait, &what, nullptr, &made), ABT_SUCCESS);
        let_wait_or_end(made);
        ASSERT_EQ(ABT_cond_signal(what.cond), ABT_SUCCESS);
        ABT_thread_yield();
        let_wait_or_end(made);
        ASSERT_EQ(ABT_eventual_set(what.eventual, nullptr, 0), ABT_SUCCESS);
        ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
        EXPECT_EQ(what.results[0], ABT_SUCCESS) << seconds;
        EXPECT_EQ(what.results[1], ABT_SUCCESS) << seconds;
        ASSERT_EQ(ABT_eventual_reset(what.eventual), ABT_SUCCESS);
    }
    for (const std::time_t seconds : {std::numeric_limits<std::time_t>::min(), std::time_t{-1}}) {
        what.until = {seconds, 0};
        EXPECT_EQ(ABT_eventual_timedwait(what.eventual, nullptr, &what.until),
                  ABT_ERR_COND_TIMEDOUT);
    }
    ABT_thread none = nullptr;
    EXPECT_EQ(ABT_pool_pop_wait_thread(here.pool, &none, std::nan("")), ABT_SUCCESS);
    EXPECT_EQ(none, nullptr);
    ASSERT_EQ(ABT_eventual_free(&what.eventual), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_free(&what.cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_free(&what.mutex), ABT_SUCCESS);
}

TEST(argobots, a_stack_that_no_memory_is_left_for_is_told_as_such) {
    const program here;
    ABT_thread_attr attr = nullptr;
    ASSERT_EQ(ABT_thread_attr_create(&attr), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_attr_set_stacksize(attr, std::size_t{1} << 52), ABT_SUCCESS);
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(
                  here.pool, [](void*) {}, nullptr, attr, &made),
              ABT_ERR_MEM);
    EXPECT_EQ(made, nullptr);
    ASSERT_EQ(ABT_thread_attr_free(&attr), ABT_SUCCESS);
}

/// In a child without the right to more threads: 0 if a stream is refused as it should be, new or
/// revived.
[[noreturn]] void create_without_threads() {
    ABT_xstream joined = nullptr;
    int wrong = ABT_init(0, nullptr) == ABT_SUCCESS ? 0 : 1;
    if (ABT_xstream_create(nullptr, &joined) != ABT_SUCCESS) wrong |= 1;
    if (ABT_xstream_join(joined) != ABT_SUCCESS) wrong |= 1;
    constexpr uid_t nobody = 65534;  // the limit does not hold for root
    const rlimit none{0, 0};
    if ((::geteuid() == 0 && ::setuid(nobody) != 0) || ::setrlimit(RLIMIT_NPROC, &none) != 0)
        ::_exit(77);
    ABT_xstream stream = nullptr;
    for (int i = 0; i < 2; ++i) {
        if (ABT_xstream_create(nullptr, &stream) != ABT_ERR_SYS || stream != nullptr) wrong |= 2;
    }
    int cpu = -1;
    for (int i = 0; i < 2; ++i) {
        if (ABT_xstream_revive(joined) != ABT_ERR_SYS) wrong |= 8;
        if (ABT_xstream_get_cpubind(joined, &cpu) != ABT_SUCCESS) wrong |= 16;
    }
    if (ABT_xstream_free(&joined) != ABT_SUCCESS) wrong |= 32;
    if (ABT_finalize() != ABT_SUCCESS) wrong |= 4;
    ::_exit(wrong);
}

TEST(argobots, a_stream_that_the_system_has_no_thread_for_is_told_as_such) {
    // The program anew: a child of a fork() might not start threads.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    int code = -1;
    const auto ended = [&](int status) {
        code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        return code == 0 || code == 77;
    };
    EXPECT_EXIT(create_without_threads(), ended, "") << code;
    if (code == 77) GTEST_SKIP() << "this user cannot give up its threads";
}

constinit std::atomic<bool> init_waits_for_fork{false}, fork_goes_on{false}, child_is_made{false};

/// As of a library that was loaded before ours: fork() calls it between our handlers and the copy.
[[gnu::constructor(101)]] void register_slow_handler_of_fork() {
    ::pthread_atfork(
        [] {
            if (!init_waits_for_fork) return;
            fork_goes_on = true;
            fork_goes_on.notify_all();
            for (int i = 0; i < 1000 && !amalgam::argobots::initialized(); ++i)
                ::usleep(1000);
        },
        nullptr, nullptr);
}

/// The exit code is 0 if a child knows that the runtime is its parent's, or if it came first, and
/// can have its own.
[[noreturn]] void fork_during_init() {
    std::thread other([] {
        fork_goes_on.wait(false);
        if (ABT_init(0, nullptr) != ABT_SUCCESS) ::_exit(2);
        child_is_made.wait(false);
        if (ABT_finalize() != ABT_SUCCESS) ::_exit(3);
    });
    init_waits_for_fork = true;
    const pid_t child = ::fork();
    if (child == 0) {
        bool is_told = !amalgam::argobots::initialized();
        try {
            amalgam::argobots::runtime::refuse_in_child();
        } catch (const amalgam::error&) {
            is_told = true;
        }
        const bool works = ABT_init(0, nullptr) == ABT_SUCCESS && ABT_finalize() == ABT_SUCCESS;
        ::_exit(!is_told ? 1 : works ? 0 : 6);
    }
    child_is_made = true;
    child_is_made.notify_all();
    int status = -1;
    if (::waitpid(child, &status, 0) != child) ::_exit(4);
    other.join();
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
}

TEST(argobots, a_child_is_told_of_a_runtime_that_another_thread_makes_during_the_fork) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // The program anew: the first ABT_init().
    EXPECT_EXIT(fork_during_init(), testing::ExitedWithCode(0), "");
}

TEST(argobots, a_stream_is_not_handed_to_who_is_queued_or_waits) {
    const program here(1);
    ABT_thread queued = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &queued),
              ABT_SUCCESS);
    EXPECT_EQ(ABT_self_suspend_to(queued), ABT_ERR_INV_THREAD);
    EXPECT_EQ(ABT_self_yield_to(queued), ABT_ERR_INV_THREAD);
    ABT_thread_yield();
    EXPECT_EQ(ABT_self_suspend_to(queued), ABT_ERR_INV_THREAD) << "it is suspended";
    ASSERT_EQ(ABT_thread_resume(queued), ABT_SUCCESS);
    ABT_thread popped = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(here.pool, &popped), ABT_SUCCESS);
    EXPECT_EQ(popped, queued);
    EXPECT_EQ(ABT_self_yield_to(popped), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&queued), ABT_SUCCESS);
    EXPECT_EQ(ABT_thread_create_many(-1, nullptr, nullptr, nullptr, nullptr, nullptr),
              ABT_ERR_INV_ARG);
}

TEST(argobots, a_stream_is_revived_after_join) {
    program here(1);
    ABT_xstream const stream = here.streams[0];
    ASSERT_EQ(ABT_xstream_join(stream), ABT_SUCCESS);
    ABT_xstream_state state;
    ASSERT_EQ(ABT_xstream_get_state(stream, &state), ABT_SUCCESS);
    EXPECT_EQ(state, ABT_XSTREAM_STATE_TERMINATED);
    ASSERT_EQ(ABT_xstream_revive(stream), ABT_SUCCESS);
    int ran = 0;
    run_and_free(
        here.pool_of(0), [](void* arg) { ++*static_cast<int*>(arg); }, &ran);
    EXPECT_EQ(ran, 1);
}

TEST(argobots, tools_are_told_of_the_events_they_asked_for) {
    const program here;
    static int created = 0, freed = 0;
    created = freed = 0;
    ASSERT_EQ(ABT_tool_register_thread_callback(
                  [](ABT_thread, ABT_xstream, uint64_t event, ABT_tool_context, void*) {
                      if (event == ABT_TOOL_EVENT_THREAD_CREATE) ++created;
                      if (event == ABT_TOOL_EVENT_THREAD_FREE) ++freed;
                  },
                  ABT_TOOL_EVENT_THREAD_CREATE | ABT_TOOL_EVENT_THREAD_FREE, nullptr),
              ABT_SUCCESS);
    int ran = 0;
    run_and_free(
        here.pool, [](void* arg) { ++*static_cast<int*>(arg); }, &ran);
    ASSERT_EQ(ABT_tool_register_thread_callback(nullptr, 0, nullptr), ABT_SUCCESS);
    EXPECT_EQ(created, 1);
    EXPECT_EQ(freed, 1);
}

/// The answer to that question, in memory that had other bytes before.
template <typename T>
T configured(ABT_info_query_kind kind) {
    T value;
    std::memset(&value, 0x5a, sizeof value);
    EXPECT_EQ(ABT_info_query_config(kind, &value), ABT_SUCCESS) << kind;
    return value;
}

TEST(argobots, what_it_is_configured_with_is_told_in_the_type_of_each_question) {
    program all;
    EXPECT_EQ(configured<std::uint64_t>(ABT_INFO_QUERY_KIND_DEFAULT_SCHED_EVENT_FREQ), 1u);
    EXPECT_EQ(configured<std::uint64_t>(ABT_INFO_QUERY_KIND_DEFAULT_SCHED_SLEEP_NSEC), 0u);
    EXPECT_EQ(configured<std::size_t>(ABT_INFO_QUERY_KIND_DEFAULT_THREAD_STACKSIZE), 256u << 10);
    EXPECT_EQ(configured<std::size_t>(ABT_INFO_QUERY_KIND_DEFAULT_SCHED_STACKSIZE), 256u << 10);
    EXPECT_GE(configured<unsigned>(ABT_INFO_QUERY_KIND_MAX_NUM_XSTREAMS), 1u);
    EXPECT_EQ(configured<int>(ABT_INFO_QUERY_KIND_ENABLED_STACK_OVERFLOW_CHECK), 1);
    EXPECT_EQ(configured<int>(ABT_INFO_QUERY_KIND_WAIT_POLICY), 0) << "idle streams sleep";
    for (const auto yes :
         {ABT_INFO_QUERY_KIND_ENABLED_CHECK_ERROR, ABT_INFO_QUERY_KIND_ENABLED_MIGRATION,
          ABT_INFO_QUERY_KIND_ENABLED_LAZY_STACK_ALLOC, ABT_INFO_QUERY_KIND_ENABLED_AFFINITY})
        EXPECT_EQ(configured<ABT_bool>(yes), ABT_TRUE) << yes;
    for (const auto no :
         {ABT_INFO_QUERY_KIND_ENABLED_DEBUG, ABT_INFO_QUERY_KIND_ENABLED_CHECK_POOL_PRODUCER})
        EXPECT_EQ(configured<ABT_bool>(no), ABT_FALSE) << no;
    int unasked = 7;
    EXPECT_EQ(ABT_info_query_config(static_cast<ABT_info_query_kind>(31), &unasked),
              ABT_ERR_INV_QUERY_KIND);
    EXPECT_EQ(unasked, 7);
}

TEST(argobots, the_size_of_stacks_is_read_from_the_environment_by_both_its_names) {
    for (const auto& [name, bytes] : {std::pair{"ABT_ENV_THREAD_STACKSIZE", std::size_t{64} << 10},
                                      {"ABT_THREAD_STACKSIZE", std::size_t{128} << 10}}) {
        ::setenv(name, std::to_string(bytes).c_str(), 1);
        {
            program all;
            EXPECT_EQ(configured<std::size_t>(ABT_INFO_QUERY_KIND_DEFAULT_THREAD_STACKSIZE), bytes);
        }
    }
    ::unsetenv("ABT_ENV_THREAD_STACKSIZE");
    ::unsetenv("ABT_THREAD_STACKSIZE");
}

TEST(argobots, error_numbers_have_their_names) {
    char name[64];
    std::size_t length = 0;
    ASSERT_EQ(ABT_error_get_str(ABT_ERR_COND_TIMEDOUT, name, &length), ABT_SUCCESS);
    EXPECT_STREQ(name, "ABT_ERR_COND_TIMEDOUT");
    EXPECT_EQ(length, std::strlen(name));
    EXPECT_EQ(ABT_error_get_str(-1, name, &length), ABT_ERR_OTHER);
}

}  // namespace
