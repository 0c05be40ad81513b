#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "abt_testing.hpp"
#include "sync/sync.hpp"

using namespace amalgam::argobots_testing;

// As Argobots' own test future_create does it: the primary ULT, which its stream looks for first,
// frees an object that ULTs of the same stream were woken from and have not run since.

namespace {

/// Starts ULTs that wait, lets them, then sets and frees what they wait for, and then lets them go
/// on.
void expect_all_go_on(void (*wait)(void*), void (*set_and_free)(void*), void* what) {
    constexpr int number = 3;
    ABT_pool pool = nullptr;
    ASSERT_EQ(ABT_self_get_last_pool(&pool), ABT_SUCCESS);
    ABT_thread units[number] = {};
    for (ABT_thread& each : units)
        ASSERT_EQ(ABT_thread_create(pool, wait, what, nullptr, &each), ABT_SUCCESS);
    ABT_thread_yield();
    set_and_free(what);
    for (ABT_thread& each : units)
        EXPECT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
}

/// So that whoever looks at what was there is lost.
void overwrite(std::size_t bytes) {
    std::vector<std::string> all(8, std::string(bytes, '\xff'));
    ASSERT_EQ(all.front().front(), '\xff');
}

/// A thread waits for `what` until a time that has passed. Meanwhile it is set and freed: each
/// round the thread stands in the line, and goes on from its deadline while the line is locked.
template <typename Object>
void free_at_deadline(Object& what, int (*wait)(Object&), void (*set_and_free)(Object&)) {
    const auto pause = [](int length) {
        for (int i = 0; i < length; ++i)
            amalgam::detail::cpu_relax();
    };
    std::atomic<int> result{-1};
    std::thread waits([&] { result = wait(what); });
    for (bool in_line = false; !in_line && result == -1; pause(50)) {
        const amalgam::argobots::waiting_line::locked hold(what.line);
        in_line = hold.anybody();
        if (in_line) pause(2000);
    }
    set_and_free(what);
    overwrite(sizeof(Object) - 1);
    waits.join();
    EXPECT_TRUE(result == ABT_SUCCESS || result == ABT_ERR_COND_TIMEDOUT);
}

constexpr timespec long_ago{};
constexpr int rounds_at_deadline = 100;

}  // namespace

TEST(argobots_freed, an_eventual_that_is_set_as_a_deadline_passes_may_be_freed) {
    const program here;
    for (int round = 0; round < rounds_at_deadline; ++round) {
        ABT_eventual eventual = nullptr;
        ASSERT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
        free_at_deadline<ABT_eventual_opaque>(
            *eventual,
            [](ABT_eventual_opaque& on) { return ABT_eventual_timedwait(&on, nullptr, &long_ago); },
            [](ABT_eventual_opaque& on) {
                ABT_eventual mine = &on;
                ABT_eventual_set(mine, nullptr, 0);
                ABT_eventual_free(&mine);
            });
    }
}

TEST(argobots_freed, a_condition_variable_that_is_told_as_a_deadline_passes_may_be_freed) {
    const program here;
    static ABT_mutex mutex;
    ASSERT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
    for (int round = 0; round < rounds_at_deadline; ++round) {
        ABT_cond cond = nullptr;
        ASSERT_EQ(ABT_cond_create(&cond), ABT_SUCCESS);
        free_at_deadline<ABT_cond_opaque>(
            *cond,
            [](ABT_cond_opaque& on) {
                ABT_mutex_lock(mutex);
                const int result = ABT_cond_timedwait(&on, mutex, &long_ago);
                ABT_mutex_unlock(mutex);
                return result;
            },
            [](ABT_cond_opaque& on) {
                ABT_cond mine = &on;
                ABT_cond_broadcast(mine);
                ABT_cond_free(&mine);
            });
    }
    ASSERT_EQ(ABT_mutex_free(&mutex), ABT_SUCCESS);
}

TEST(argobots_freed, a_future_that_is_set_may_be_freed_before_its_waiters_run) {
    const program here;
    ABT_future future = nullptr;
    ASSERT_EQ(ABT_future_create(1, nullptr, &future), ABT_SUCCESS);
    expect_all_go_on([](void* on) { ABT_future_wait(static_cast<ABT_future>(on)); },
                     [](void* on) {
                         auto* mine = static_cast<ABT_future>(on);
                         ABT_future_set(mine, nullptr);
                         ABT_future_free(&mine);
                         overwrite(100);
                     },
                     future);
}

TEST(argobots_freed, an_eventual_that_is_set_may_be_freed_before_its_waiters_run) {
    const program here;
    ABT_eventual eventual = nullptr;
    ASSERT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
    expect_all_go_on([](void* on) { ABT_eventual_wait(static_cast<ABT_eventual>(on), nullptr); },
                     [](void* on) {
                         auto* mine = static_cast<ABT_eventual>(on);
                         ABT_eventual_set(mine, nullptr, 0);
                         ABT_eventual_free(&mine);
                         overwrite(60);
                     },
                     eventual);
}

TEST(argobots_freed, a_barrier_may_be_freed_by_the_last_to_arrive) {
    const program here;
    ABT_barrier barrier = nullptr;
    ASSERT_EQ(ABT_barrier_create(4, &barrier), ABT_SUCCESS);
    expect_all_go_on([](void* on) { ABT_barrier_wait(static_cast<ABT_barrier>(on)); },
                     [](void* on) {
                         auto* mine = static_cast<ABT_barrier>(on);
                         ABT_barrier_wait(mine);
                         ABT_barrier_free(&mine);
                         overwrite(60);
                     },
                     barrier);
}

TEST(argobots_freed, one_that_a_future_has_woken_does_not_wait_again_if_it_is_reset_meanwhile) {
    const program here;
    ABT_future future = nullptr;
    ASSERT_EQ(ABT_future_create(1, nullptr, &future), ABT_SUCCESS);
    expect_all_go_on([](void* on) { ABT_future_wait(static_cast<ABT_future>(on)); },
                     [](void* on) {
                         ABT_future_set(static_cast<ABT_future>(on), nullptr);
                         ABT_future_reset(static_cast<ABT_future>(on));
                     },
                     future);
    EXPECT_EQ(ABT_future_free(&future), ABT_SUCCESS);
}
