// Counts allocations on the hot paths: none, once their pools are warm.

#include <chrono>
#include <functional>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/and_gate.hpp>
#include <amalgam/tasks/barrier.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/eventual.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/latch.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/start_sleep.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

/// Allocations of a thousand runs of `step` in a ULT, once its pools are warm: once they hold
/// everything in flight plus what every thread may keep, some hundred blocks.
std::uint64_t allocations_of(execution_stream& stream, const std::function<void()>& step) {
    std::uint64_t counted = 1;
    ult runs = spawn(stream, [&] {
        for (int rounds = 0; rounds < 300 && counted != 0; ++rounds) {
            const std::uint64_t before = memory::allocations();
            for (int i = 0; i < 1000; ++i) {
                step();
            }
            counted = memory::allocations() - before;
        }
    });
    if (stream.driven()) stream.run_ready();
    runs.join();
    return counted;
}

struct allocation : testing::Test {
    void SetUp() override {
        if (detail::sanitized) GTEST_SKIP() << "small blocks are not pooled under sanitizers";
    }
    execution_stream stream{execution_stream_options{.driven = true}};
};

TEST_F(allocation, none_per_spawn_and_join) {
    EXPECT_EQ(allocations_of(stream, [&] { spawn(stream, [] {}).join(); }), 0u);
}

TEST_F(allocation, none_per_post_and_tasklet) {
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 post(stream, [] {});
                                 post_tasklet(stream, [] {});
                                 this_task::yield();
                             }),
              0u);
}

TEST_F(allocation, none_per_cancel_before_the_beginning) {
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 ult never = spawn(stream, [] {});
                                 tasklet nor_this = spawn_tasklet(stream, [] {});
                                 never.cancel();
                                 nor_this.cancel();
                                 never.wait();
                                 nor_this.wait();
                                 never.detach();
                                 nor_this.detach();
                             }),
              0u);
}

TEST_F(allocation, none_per_future) {
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 promise<int> brings;
                                 auto later = brings.get_future();
                                 post(stream, [&] { brings.set_value(1); });
                                 later.get();
                             }),
              0u);
}

TEST_F(allocation, none_per_wait_with_a_deadline) {
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 event happened;
                                 post(stream, [&] { happened.set(); });
                                 happened.wait_for(std::chrono::hours(1));
                             }),
              0u);
}

TEST_F(allocation, none_per_item_of_a_channel) {
    channel<int> items(1);
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 post(stream, [&] {
                                     for (int i = 0; i < 4; ++i)
                                         items.push(i);  // waits
                                 });
                                 for (int i = 0; i < 4; ++i)
                                     items.pop_for(std::chrono::hours(1));  // waits too
                             }),
              0u);
}

TEST_F(allocation, none_per_contended_lock_or_permit) {
    mutex plain;
    recursive_mutex recursive;
    shared_mutex shared;
    semaphore permits(1);
    const auto take_all = [&] {
        const std::scoped_lock hold(plain, recursive, shared);
        permits.acquire();
        this_task::yield();
        permits.release();
    };
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 ult other = spawn(stream, take_all);
                                 take_all();
                                 other.join();
                             }),
              0u);
}

TEST_F(allocation, none_per_meeting_or_value) {
    barrier meet(2);
    eventual<int> answer;
    and_gate<int> gate(2);
    EXPECT_EQ(allocations_of(stream,
                             [&] {
                                 latch done(1);
                                 post(stream, [&] {
                                     answer.set(1);
                                     gate.set(2);
                                     meet.arrive_and_wait();
                                     done.count_down();
                                 });
                                 answer.wait();
                                 gate.set(3);
                                 gate.wait();
                                 meet.arrive_and_wait();
                                 done.wait();
                                 answer.reset();
                                 gate.reset();
                             }),
              0u);
}

task<int> slow_sum(channel<int>& items, execution_stream& where) {
    co_await start_sleep_until(where, where.now());
    co_return *co_await items.start_pop() + *co_await items.start_pop();
}

TEST_F(allocation, none_per_coroutine) {
    execution_stream runs;  // not driven: it sleeps
    channel<int> items(1);
    EXPECT_EQ(allocations_of(runs,
                             [&] {
                                 auto later = spawn_coroutine(runs, slow_sum(items, runs));
                                 items.push(1);
                                 items.push(2);
                                 later.get();
                                 items.push(3);
                                 post(runs, [&] { items.push(4); });
                                 slow_sum(items, runs).get();
                             }),
              0u);
}

template <typename Pool>
class pool_allocation : public testing::Test {};
using pools =
    testing::Types<fifo_pool, shared_fifo_pool, lifo_pool, priority_pool, work_stealing_pool>;
TYPED_TEST_SUITE(pool_allocation, pools);

TYPED_TEST(pool_allocation, none_per_push_however_many_wait) {
    struct idle final : work_unit {
        idle() noexcept : work_unit([](work_unit&) noexcept {}) {}
    };
    std::vector<idle> units(20'000);
    TypeParam where;
    std::uint8_t priority = 0;
    const std::uint64_t before = memory::allocations();
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < units.size(); ++i) {
            units[i].priority = priority++;
            i % 7 == 0 ? where.push_by_priority(units[i]) : where.push(units[i]);
        }
        EXPECT_EQ(where.size(), units.size());
        for (std::size_t i = 0; i < units.size(); ++i) {
            work_unit* const next = where.pop();
            ASSERT_NE(next, nullptr);
            where.requeue(*next);
        }
        for (std::size_t i = 0; i < units.size(); ++i)
            ASSERT_NE(where.pop(), nullptr);
        EXPECT_TRUE(where.empty());
    }
    EXPECT_EQ(memory::allocations(), before);
}

TEST_F(allocation, none_when_one_stream_makes_and_another_frees) {
    execution_stream maker, worker;
    EXPECT_EQ(allocations_of(maker,
                             [&] {
                                 promise<void> brings;
                                 auto later = brings.get_future();
                                 post(worker, [brings = std::move(brings)]() mutable {
                                     brings.set_value();
                                 });
                                 later.get();
                             }),
              0u);
}

}  // namespace
}  // namespace amalgam
