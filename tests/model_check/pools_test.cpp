// tasks: the inbox of fifo_pool with the bell of the stream that serves it, and the work-stealing
// deque under its lock.
#include <gtest/gtest.h>

#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "model_check/checker/checker.hpp"
#include "model_check/stand_ins.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto release = std::memory_order_release;

struct unit : work_unit {
    unit() : work_unit([](work_unit&) noexcept {}) {}
    int data = 0;
};

result of_fifo_pool(const std::function<void(execution&, served_pool&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& stream = run.make<served_pool>();
        auto& units = run.make<std::array<unit, 2>>();
        run.name(&stream.pool.inbox_, "inbox");
        run.name(&stream.bell.asleep, "asleep");
        if (weaken) weaken(run, stream);
        for (auto& each : units) {
            run.thread([&stream, &each] {
                each.data = 1;
                stream.pool.push(each);
            });
        }
        run.thread([&stream] {
            for (int ran = 0; ran < 2;) {
                work_unit* const next = stream.pool.pop();
                if (next == nullptr) {
                    stream.sleep();
                    continue;
                }
                require(std::exchange(static_cast<unit*>(next)->data, 2) == 1,
                        "a unit runs twice, or not as it was pushed");
                ++ran;
            }
        });
    });
}

TEST(fifo_pool_model, each_unit_runs_once_and_the_stream_does_not_sleep_through_a_push) {
    const result found = of_fifo_pool();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    RecordProperty("executions", static_cast<int>(found.executions));
}

TEST(fifo_pool_model, weaker_orders_are_found) {
    EXPECT_NE(of_fifo_pool([](execution& run, served_pool& stream) {
                  run.weaken(stream.pool.inbox_, act::change, relaxed);
              }).failure,
              "");
    EXPECT_EQ(of_fifo_pool([](execution& run, served_pool& stream) {
                  run.weaken(stream.bell.asleep, act::store, release);
              }).failure,
              "all threads wait for ever");
    EXPECT_EQ(of_fifo_pool([](execution& run, served_pool& stream) {
                  run.weaken(stream.pool.inbox_, act::load, relaxed);
              }).failure,
              "all threads wait for ever");
}

result of_stealing(const std::function<void(execution&, work_stealing_pool&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& pool = run.make<work_stealing_pool>();
        auto& units = run.make<std::array<unit, 2>>();
        auto& taken = run.make<std::atomic<int>>(0);
        run.name(&pool.busy_, "lock");
        run.name(&pool.size_, "size");
        if (weaken) weaken(run, pool);
        const auto steal = [&] {
            if (work_unit* const next = pool.pop()) {
                require(std::exchange(static_cast<unit*>(next)->data, 2) == 1,
                        "a unit runs twice, or not as it was pushed");
                taken.fetch_add(1, relaxed);
            }
        };
        run.thread([&, steal] {
            for (auto& each : units) {
                each.data = 1;
                pool.push(each);
            }
            steal();
        });
        run.thread(steal);
        run.afterwards([&] {
            require(static_cast<std::size_t>(taken.load()) + pool.size() == 2, "a unit is lost");
            while (pool.pop() != nullptr) {
            }
        });
    });
}

TEST(work_stealing_pool_model, each_unit_is_taken_once) {
    const result found = of_stealing();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    RecordProperty("executions", static_cast<int>(found.executions));
}

TEST(work_stealing_pool_model, a_weaker_lock_is_found) {
    EXPECT_NE(of_stealing([](execution& run, auto& pool) {
                  run.weaken_at(&pool.busy_, act::store, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_stealing([](execution& run, auto& pool) {
                  run.weaken_at(&pool.busy_, act::change, relaxed);
              }).failure,
              "");
}

}  // namespace
}  // namespace amalgam::model
