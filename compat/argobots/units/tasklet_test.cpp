#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/tasklet.hpp>

#include "abt_testing.hpp"

namespace {

using namespace amalgam::argobots_testing;

void count(void* arg) {
    ++*static_cast<int*>(arg);
}

ABT_task made_in(ABT_pool pool, void (*function)(void*), void* arg) {
    ABT_task made = nullptr;
    EXPECT_EQ(ABT_task_create(pool, function, arg, &made), ABT_SUCCESS);
    return made;
}

TEST(argobots_tasklet, has_no_stack_of_its_own) {
    const program here;
    void* frames[2] = {};
    const auto note = [](void* arg) { *static_cast<void**>(arg) = __builtin_frame_address(0); };
    ABT_task first = made_in(here.pool, note, &frames[0]);
    ABT_task second = made_in(here.pool, note, &frames[1]);
    ASSERT_EQ(ABT_task_free(&first), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&second), ABT_SUCCESS);
    EXPECT_NE(frames[0], nullptr);
    EXPECT_EQ(frames[0], frames[1]);
}

TEST(argobots_tasklet, knows_itself_and_its_stream) {
    const program here(1);
    struct seen {
        ABT_task self = nullptr;
        ABT_bool yields = ABT_TRUE;
        int rank = -1;
        int other_error = -1;
    } what;
    ABT_task made = made_in(
        here.pool_of(0),
        [](void* arg) {
            auto& mine = *static_cast<seen*>(arg);
            ABT_task_self(&mine.self);
            ABT_self_get_xstream_rank(&mine.rank);
            ABT_thread other = nullptr;
            mine.other_error = ABT_thread_self(&other);
        },
        &what);
    ASSERT_EQ(ABT_task_join(made), ABT_SUCCESS);
    EXPECT_EQ(what.self, made);
    EXPECT_EQ(what.rank, 1);
    EXPECT_EQ(what.other_error, ABT_ERR_INV_THREAD);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
}

TEST(argobots_tasklet, is_joined_by_a_plain_thread_and_by_ults_of_any_stream) {
    const program here(1);
    for (int round = 0; round < 200; ++round) {
        int ran = 0;
        ABT_task made = made_in(here.pool_of(0), count, &ran);
        if (round % 2 == 0) {
            std::thread([&] { EXPECT_EQ(ABT_task_join(made), ABT_SUCCESS); }).join();
        } else {
            run_and_free(
                here.pool, [](void* arg) { ABT_task_join(static_cast<ABT_task>(arg)); }, made);
        }
        ABT_task_state state;
        ASSERT_EQ(ABT_task_get_state(made, &state), ABT_SUCCESS);
        EXPECT_EQ(state, ABT_TASK_STATE_TERMINATED);
        ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
        EXPECT_EQ(ran, 1);
    }
}

TEST(argobots_tasklet, is_revived_canceled_or_has_no_name) {
    const program here;
    int ran = 0;
    ABT_task made = made_in(here.pool, count, &ran);
    ASSERT_EQ(ABT_task_join(made), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_revive(here.pool, count, &ran, &made), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 2);
    made = made_in(here.pool, count, &ran);
    ASSERT_EQ(ABT_task_cancel(made), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 2);
    ASSERT_EQ(ABT_task_create(here.pool, count, &ran, nullptr), ABT_SUCCESS);
    while (ran == 2)
        ABT_thread_yield();
    EXPECT_EQ(ran, 3);
}

TEST(argobots_tasklet, is_run_by_a_user_s_scheduler_that_schedules_it) {
    const program here;
    int ran = 0;
    ABT_pool apart = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &apart),
              ABT_SUCCESS);
    ABT_task made = made_in(apart, count, &ran);
    run_and_free(
        here.pool,
        [](void* arg) {
            ABT_thread next = nullptr;
            EXPECT_EQ(ABT_pool_pop_thread(static_cast<ABT_pool>(arg), &next), ABT_SUCCESS);
            EXPECT_EQ(ABT_self_schedule(next, ABT_POOL_NULL), ABT_SUCCESS);
        },
        apart);
    EXPECT_EQ(ran, 1);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&apart), ABT_SUCCESS);
}

TEST(argobots_tasklet, can_be_freed_after_its_pool_though_it_never_ran) {
    const program here;
    int ran = 0;
    ABT_pool apart = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &apart),
              ABT_SUCCESS);
    ABT_task made = made_in(apart, count, &ran);
    ASSERT_EQ(ABT_task_create(apart, count, &ran, nullptr), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&apart), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 0);
}

TEST(argobots_tasklet, may_not_yield_or_suspend) {
    const program here;
    int errors[2] = {};
    ABT_task made = nullptr;
    ASSERT_EQ(ABT_task_create(
                  here.pool,
                  [](void* arg) {
                      static_cast<int*>(arg)[0] = ABT_self_yield();
                      static_cast<int*>(arg)[1] = ABT_self_suspend();
                  },
                  errors, &made),
              ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(errors[0], ABT_ERR_INV_THREAD);
    EXPECT_EQ(errors[1], ABT_ERR_INV_THREAD);
}

TEST(argobots_tasklet, may_not_change_or_end_its_stream) {
    const program here(1);
    struct seen {
        ABT_xstream stream;
        ABT_pool other = nullptr;
        int change = -1;
        int end = -1;
    } what{here.streams[0]};
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_TRUE, &what.other),
              ABT_SUCCESS);
    ABT_task made = made_in(
        here.pool_of(0),
        [](void* arg) {
            auto& mine = *static_cast<seen*>(arg);
            mine.change =
                ABT_xstream_set_main_sched_basic(mine.stream, ABT_SCHED_BASIC, 1, &mine.other);
            mine.end = ABT_xstream_exit();
        },
        &what);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(what.change, ABT_ERR_INV_THREAD);
    EXPECT_EQ(what.end, ABT_ERR_INV_THREAD);
    int ran = 0;
    made = made_in(here.pool_of(0), count, &ran);  // which goes on
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 1);

    // The pool was refused with its scheduler, and is still the program's.
    EXPECT_EQ(ABT_xstream_set_main_sched_basic(here.streams[0], ABT_SCHED_BASIC, 1, &what.other),
              ABT_ERR_XSTREAM_STATE);
    made = made_in(what.other, count, &ran);
    ABT_thread taken = nullptr;
    ASSERT_EQ(ABT_pool_pop_thread(what.other, &taken), ABT_SUCCESS);
    EXPECT_EQ(taken, made);
    ASSERT_EQ(ABT_pool_push_thread(here.pool_of(0), taken), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 2);
    ASSERT_EQ(ABT_pool_free(&what.other), ABT_SUCCESS);
}

TEST(argobots_tasklet, has_some_MiB_of_stack_on_the_primary_stream_too) {
    const program here;
    int ran = 0;
    ABT_task made = made_in(
        here.pool,
        [](void* arg) {
            volatile char most[2 << 20];
            for (std::size_t at = sizeof most; at-- > 0;)
                most[at] = 1;
            ++*static_cast<int*>(arg);
        },
        &ran);
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(ran, 1);
}

TEST(argobots_tasklet, and_streams_of_a_parent_process_are_not_waited_for_in_a_child) {
    const program here(1);
    ABT_xstream stream = here.streams[0];
    ABT_pool pool = here.pool_of(0);
    int ran = 0;
    ABT_task over = made_in(here.pool, count, &ran);
    ASSERT_EQ(ABT_task_join(over), ABT_SUCCESS);
    ran = 0;
    ABT_task made = made_in(here.pool, count, &ran);
    const pid_t child = ::fork();
    if (child == 0) {
        ABT_thread none = nullptr;
        const bool refused =
            ABT_task_create(pool, count, &ran, &none) == ABT_ERR_OTHER &&
            ABT_thread_create(pool, count, &ran, nullptr, &none) == ABT_ERR_OTHER &&
            ABT_task_revive(pool, count, &ran, &over) == ABT_ERR_OTHER &&
            ABT_xstream_join(stream) == ABT_ERR_OTHER && ABT_xstream_free(&stream) == ABT_ERR_OTHER;
        ABT_task_join(made);  // which is logged
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&over), ABT_SUCCESS);
    EXPECT_EQ(ran, 1);
}

TEST(argobots_tasklet, may_wait_for_a_mutex_only) {
    const program here(1);
    struct shared {
        ABT_thread other = nullptr;
        ABT_eventual eventual = nullptr;
        ABT_future future = nullptr;
        ABT_barrier barrier = nullptr;
        ABT_rwlock rwlock = nullptr;
        ABT_cond cond = nullptr;
        ABT_mutex mutex = nullptr;
        int results[7] = {-1, -1, -1, -1, -1, -1, -1};
    } what;
    ASSERT_EQ(ABT_eventual_create(0, &what.eventual), ABT_SUCCESS);
    ASSERT_EQ(ABT_future_create(1, nullptr, &what.future), ABT_SUCCESS);
    ASSERT_EQ(ABT_barrier_create(2, &what.barrier), ABT_SUCCESS);
    ASSERT_EQ(ABT_rwlock_create(&what.rwlock), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_create(&what.cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_create(&what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_lock(what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) {}, nullptr, nullptr, &what.other),
              ABT_SUCCESS);
    ABT_task made = nullptr;
    ASSERT_EQ(ABT_task_create(
                  here.pool_of(0),
                  [](void* arg) {
                      auto& mine = *static_cast<shared*>(arg);
                      mine.results[0] = ABT_thread_join(mine.other);
                      mine.results[1] = ABT_eventual_wait(mine.eventual, nullptr);
                      mine.results[2] = ABT_future_wait(mine.future);
                      mine.results[3] = ABT_barrier_wait(mine.barrier);
                      mine.results[4] = ABT_rwlock_rdlock(mine.rwlock);
                      mine.results[5] = ABT_mutex_lock(mine.mutex);
                      mine.results[6] = ABT_cond_wait(mine.cond, mine.mutex);
                      ABT_mutex_unlock(mine.mutex);
                  },
                  &what, &made),
              ABT_SUCCESS);
    ABT_thread_yield();
    ASSERT_EQ(ABT_mutex_unlock(what.mutex), ABT_SUCCESS);  // for which its stream waits
    ASSERT_EQ(ABT_task_free(&made), ABT_SUCCESS);
    EXPECT_EQ(what.results[0], ABT_ERR_INV_THREAD);
    EXPECT_EQ(what.results[1], ABT_ERR_EVENTUAL);
    EXPECT_EQ(what.results[2], ABT_ERR_FUTURE);
    EXPECT_EQ(what.results[3], ABT_ERR_BARRIER);
    EXPECT_EQ(what.results[4], ABT_ERR_RWLOCK);
    EXPECT_EQ(what.results[5], ABT_SUCCESS);
    EXPECT_EQ(what.results[6], ABT_ERR_COND);
    ASSERT_EQ(ABT_thread_free(&what.other), ABT_SUCCESS);
    ASSERT_EQ(ABT_mutex_free(&what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_free(&what.cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_rwlock_free(&what.rwlock), ABT_SUCCESS);
    ASSERT_EQ(ABT_barrier_free(&what.barrier), ABT_SUCCESS);
    ASSERT_EQ(ABT_future_free(&what.future), ABT_SUCCESS);
    ASSERT_EQ(ABT_eventual_free(&what.eventual), ABT_SUCCESS);
}

TEST(argobots_tasklet, of_amalgam_may_wait_for_a_mutex_only_too) {
    const program here;
    ABT_mutex mutex = nullptr;
    ABT_eventual eventual = nullptr;
    ASSERT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
    std::atomic<bool> locked{false}, begun{false};
    std::thread holder([&] {
        EXPECT_EQ(ABT_mutex_lock(mutex), ABT_SUCCESS);
        locked = true;
        while (!begun)
            std::this_thread::yield();
        for (int i = 0; i < 10; ++i)
            std::this_thread::yield();
        EXPECT_EQ(ABT_mutex_unlock(mutex), ABT_SUCCESS);
    });
    while (!locked)
        std::this_thread::yield();
    amalgam::tasklet waiting = amalgam::spawn_tasklet(*amalgam::execution_stream::current(), [&] {
        begun = true;
        EXPECT_EQ(ABT_eventual_wait(eventual, nullptr), ABT_ERR_EVENTUAL);
        EXPECT_EQ(ABT_mutex_lock(mutex), ABT_SUCCESS);
        EXPECT_EQ(ABT_mutex_unlock(mutex), ABT_SUCCESS);
    });
    EXPECT_NO_THROW(waiting.join());
    holder.join();
    ASSERT_EQ(ABT_mutex_free(&mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_eventual_free(&eventual), ABT_SUCCESS);
}

TEST(argobots_tasklet, that_waits_for_a_mutex_of_a_ult_of_its_stream_keeps_that_from_unlocking_it) {
    const program here(1);
    struct shared {
        ABT_mutex mutex = nullptr;
        std::atomic<bool> locked{false}, done{false};
        std::atomic<int> yields{0};
        int tried = -1;
        std::string order;
    } what;
    ASSERT_EQ(ABT_mutex_create(&what.mutex), ABT_SUCCESS);
    ABT_thread holder = nullptr;
    ABT_task waiting = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool_of(0),
                  [](void* arg) {
                      auto& mine = *static_cast<shared*>(arg);
                      ABT_mutex_lock(mine.mutex);
                      mine.locked = true;
                      while (!mine.done) {  // which only the tasklet makes so
                          ++mine.yields;
                          ABT_thread_yield();
                      }
                      mine.order += "holder";
                  },
                  &what, nullptr, &holder),
              ABT_SUCCESS);
    while (!what.locked)
        std::this_thread::yield();
    ASSERT_EQ(ABT_task_create(
                  here.pool_of(0),
                  [](void* arg) {
                      auto& mine = *static_cast<shared*>(arg);
                      mine.tried = ABT_mutex_trylock(mine.mutex);
                      ABT_mutex_lock(mine.mutex);
                      mine.order += "tasklet ";
                      mine.done = true;
                      ABT_mutex_unlock(mine.mutex);
                  },
                  &what, &waiting),
              ABT_SUCCESS);
    ABT_task_state is = ABT_TASK_STATE_READY;
    ABT_thread_state waits = ABT_THREAD_STATE_READY;
    while (waits != ABT_THREAD_STATE_BLOCKED)
        ABT_thread_get_state(waiting, &waits);
    ASSERT_EQ(ABT_task_get_state(waiting, &is), ABT_SUCCESS);
    EXPECT_EQ(is, ABT_TASK_STATE_RUNNING);
    const int yields = what.yields;
    for (int i = 0; i < 100; ++i)
        std::this_thread::yield();
    EXPECT_EQ(what.yields, yields);  // the holder does not run, so only another may unlock it
    ASSERT_EQ(ABT_mutex_unlock(what.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_task_free(&waiting), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&holder), ABT_SUCCESS);
    EXPECT_EQ(what.tried, ABT_ERR_MUTEX_LOCKED);
    EXPECT_EQ(what.order, "tasklet holder");
    ASSERT_EQ(ABT_mutex_free(&what.mutex), ABT_SUCCESS);
}

}  // namespace
