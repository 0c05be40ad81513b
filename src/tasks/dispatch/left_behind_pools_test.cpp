#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/left_behind_testing.hpp"

// Destruction of pools: user-defined ones, and ones being pushed to meanwhile.

namespace amalgam {
namespace {

/// A pool whose push takes until the destructor has checked for units twice.
struct slow_pool final : deque_pool {
    explicit slow_pool(bool& came_in_time) : in_time(came_in_time) {}
    ~slow_pool() override {
        ending = true;
        drop_left();
        in_time = pushed && empty();
        ended = true;
        while (!pushed)
            std::this_thread::yield();
    }
    void push(work_unit& unit) noexcept override {
        pushing = true;
        while (slow && looks < 2 && !ended)
            std::this_thread::yield();
        const std::lock_guard hold(busy);
        units.push_back(&unit);
        pushed = true;
    }
    work_unit* pop() noexcept override {
        if (ending) ++looks;
        return deque_pool::pop();
    }
    bool& in_time;
    std::atomic<bool> slow{false}, pushing{false}, pushed{false}, ending{false}, ended{false};
    std::atomic<int> looks{0};
};

/// A pool that omits drop_left().
struct careless_pool : pool {
    careless_pool() : pool(pool_access::any_stream) {}
    void push(work_unit& unit) noexcept override { units.push_back(&unit); }
    work_unit* pop() noexcept override {
        if (units.empty()) return nullptr;
        work_unit* const first = units.front();
        units.pop_front();
        return first;
    }
    bool empty() const noexcept override { return units.empty(); }
    std::size_t size() const noexcept override { return units.size(); }
    std::deque<work_unit*> units;
};

TEST_F(left_behind, a_pool_that_drops_nothing_cancels_its_ults_all_the_same) {
    driven_pool<careless_pool> at;
    event go;
    ult parked = spawn(*at.where, [&] { go.wait(); });
    at.run();
    ult fresh = spawn(*at.where, [] {});
    at.end();
    EXPECT_EQ(told("ults=2"), 1u) << all_told();
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_EQ(why_canceled(fresh).substr(0, canceled_ult.size()), canceled_ult);
    go.set();
}

TEST_F(left_behind, one_that_a_scheduler_had_taken_out_does_not_run) {
    driven_pool<careless_pool> at;
    bool ran = false;
    ult taken = spawn(*at.where, [&] { ran = true; });
    work_unit& unit = *at.where->pop();
    at.end();
    at.replacement.push(unit);
    at.run();
    EXPECT_FALSE(ran);
    EXPECT_EQ(why_canceled(taken).substr(0, canceled_ult.size()), canceled_ult);
}

TEST_F(left_behind, one_that_is_being_pushed_is_waited_for) {
    bool in_time = false;
    auto where = std::make_unique<slow_pool>(in_time);
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                            {.driven = true});
    event go;
    ult parked = spawn(*where, [&] { go.wait(); });
    stream.run_ready();
    stream.stop();
    where->pushed = where->pushing = false;
    where->slow = true;
    std::thread wakes([&] { go.set(); });
    while (!where->pushing)
        std::this_thread::yield();
    where.reset();
    wakes.join();
    EXPECT_TRUE(in_time);
    EXPECT_EQ(told("ults=1"), 1u) << all_told();
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
}

TEST_F(left_behind, ults_may_be_unparked_while_their_pool_ends) {
    constexpr int ults = 50;
    for (int round = 0; round < 20; ++round) {
        driven_pool<shared_fifo_pool> at;
        std::deque<event> go(ults);
        std::vector<ult> all;
        for (event& each : go)
            all.push_back(spawn(*at.where, [&each] { each.wait(); }));
        at.run();
        std::atomic<bool> begin{false};
        std::thread wakes([&] {
            begin.wait(false);
            for (event& each : go)
                each.set();
        });
        at.stream->stop();
        begin = true;
        begin.notify_one();
        at.where.reset();
        wakes.join();
        for (ult& each : all)
            EXPECT_EQ(why_canceled(each).substr(0, canceled_ult.size()), canceled_ult);
    }
}

}  // namespace
}  // namespace amalgam
