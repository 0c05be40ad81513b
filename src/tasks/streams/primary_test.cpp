#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

const execution_stream_options as_primary{.name = "main", .primary = true};

TEST(primary_stream, makes_its_thread_a_ult_until_it_stops) {
    EXPECT_FALSE(this_task::in_ult());
    for (int i = 0; i < 3; ++i) {
        execution_stream here(as_primary);
        EXPECT_TRUE(this_task::in_ult());
        EXPECT_EQ(execution_stream::current(), &here);
        const auto thread = std::this_thread::get_id();
        std::string order;
        ult other = spawn([&] {
            EXPECT_EQ(std::this_thread::get_id(), thread);
            order += 'o';
            this_task::yield();
            order += 'o';
        });
        order += 'm';
        this_task::yield();
        order += 'm';
        other.join();
        EXPECT_EQ(order, "momo");
        here.stop();
        EXPECT_FALSE(this_task::in_ult());
        here.stop();
    }
}

TEST(primary_stream, runs_others_while_its_thread_waits) {
    execution_stream here(as_primary);
    int turns = 0;
    bool over = false;
    ult busy = spawn([&] {
        while (!over) {
            ++turns;
            this_task::yield();
        }
    });
    this_task::sleep_for(2ms);
    over = true;
    EXPECT_GT(turns, 0);
    busy.join();
    spawn_tasklet(here, [&] { EXPECT_FALSE(this_task::in_ult()); }).join();
}

TEST(primary_stream, sleeps_until_another_thread_wakes_it) {
    execution_stream here({.spin = 0ns, .primary = true});
    for (int i = 0; i < 300; ++i) {
        event happened;
        std::thread outside([&] { happened.set(); });
        happened.wait();
        outside.join();
    }
}

TEST(primary_stream, talks_to_one_in_another_thread) {
    channel<int> there(1), back(1);
    std::thread other([&] {
        execution_stream here(as_primary);
        while (auto item = there.pop())
            back.push(*item + 1);
    });
    {
        execution_stream here(as_primary);
        for (int i = 0; i < 500; ++i) {
            there.push(i);
            EXPECT_EQ(back.pop(), i + 1);
        }
        there.close();
    }
    other.join();
}

TEST(primary_stream, finishes_what_is_ready_when_it_stops) {
    int ran = 0;
    {
        execution_stream here(as_primary);
        for (int i = 0; i < 50; ++i) {
            post([&] {
                this_task::yield();
                ++ran;
            });
        }
    }
    EXPECT_EQ(ran, 50);
}

TEST(primary_stream, keeps_its_thread_where_others_steal) {
    work_stealing_pool mine, theirs;
    fifo_pool another;
    execution_stream thief(
        std::make_unique<work_stealing_scheduler>(std::vector<pool*>{&theirs, &mine}));
    execution_stream here(
        std::make_unique<work_stealing_scheduler>(std::vector<pool*>{&mine, &theirs}), as_primary);
    const auto thread = std::this_thread::get_id();
    std::atomic<int> ran = 0;
    for (int i = 0; i < 200; ++i) {
        ult other = spawn([&] { ++ran; });
        EXPECT_EQ(&this_task::home(), &mine);
        this_task::yield();
        other.join();
        ASSERT_EQ(std::this_thread::get_id(), thread);
    }
    EXPECT_EQ(ran, 200);
    here.set_scheduler(
        std::make_unique<priority_scheduler>(std::vector<pool*>{&another, &mine, &theirs}));
    spawn([&] { ++ran; }).join();
    EXPECT_EQ(ran, 201);
}

TEST(primary_stream, bad_use_is_refused) {
    EXPECT_THROW(execution_stream({.driven = true, .primary = true}), error);
    execution_stream here(as_primary);
    EXPECT_THROW(execution_stream second(as_primary), error);
    EXPECT_THROW(here.run_ready(), error);
    EXPECT_THROW(this_task::exit(), error);
    execution_stream other;
    EXPECT_THROW(this_task::migrate(other.main_pool()), error);
    spawn([&] { EXPECT_THROW(here.stop(), error); }).join();
    spawn(other, [&] { EXPECT_THROW(here.stop(), error); }).join();
    EXPECT_TRUE(this_task::in_ult());
}

}  // namespace
}  // namespace amalgam
