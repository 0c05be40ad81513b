#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

TEST(rank, is_the_lowest_free_one_and_unique) {
    execution_stream a, b;
    EXPECT_EQ(a.rank(), 0);
    EXPECT_EQ(b.rank(), 1);
    b.set_rank(7);
    EXPECT_EQ(b.rank(), 7);
    b.set_rank(7);
    execution_stream c;
    EXPECT_EQ(c.rank(), 1);
    for (const int wrong : {0, 7, -1, -2, 1'000'001})
        EXPECT_THROW(c.set_rank(wrong), error) << wrong;
    EXPECT_EQ(c.rank(), 1);
    const std::string told = error_of([&] { c.set_rank(-1); }).what();
    EXPECT_NE(told.find("cannot get rank -1, expected 0 to"), std::string::npos) << told;
    EXPECT_THROW(execution_stream(execution_stream_options{.rank = 7}), error);
    const execution_stream d(execution_stream_options{.driven = true, .rank = 5});
    EXPECT_EQ(d.rank(), 5);
}

TEST(rank, is_free_again_when_its_stream_is_gone) {
    for (int i = 0; i < 3; ++i) {
        const execution_stream one;
        EXPECT_EQ(one.rank(), 0);
    }
    EXPECT_THROW(execution_stream(execution_stream_options{.cpu = 8000}), error);
    const execution_stream one;
    EXPECT_EQ(one.rank(), 0);
}

TEST(stream_state, says_what_a_stream_does) {
    execution_stream stream;
    spawn(stream, [&] { EXPECT_EQ(stream.state(), stream_state::running); }).join();
    while (stream.state() != stream_state::asleep)
        std::this_thread::yield();
    std::atomic<bool> go{false};
    post_tasklet(stream, [&] {
        while (!go)
            std::this_thread::yield();
    });
    std::thread stopper([&] { stream.stop(); });
    while (stream.state() != stream_state::stopping)
        std::this_thread::yield();
    go = true;
    stopper.join();
    EXPECT_EQ(stream.state(), stream_state::stopped);
    stream.revive();
    EXPECT_NE(stream.state(), stream_state::stopped);

    execution_stream driven(execution_stream_options{.driven = true});
    EXPECT_EQ(driven.state(), stream_state::asleep);
    post(driven, [&] { EXPECT_EQ(driven.state(), stream_state::running); });
    driven.run_ready();
}

TEST(revive, starts_a_stopped_stream_again_and_again) {
    execution_stream stream(execution_stream_options{.name = "phoenix"});
    const int rank = stream.rank();
    for (int i = 0; i < 5; ++i) {
        int ran = 0;
        spawn(stream, [&] {
            this_task::sleep_for(std::chrono::microseconds(10));
            ++ran;
        }).join();
        EXPECT_EQ(ran, 1);
        stream.stop();
        EXPECT_THROW(spawn(stream, [] {}), error);
        stream.revive();
        EXPECT_EQ(stream.rank(), rank);
    }
}

TEST(revive, goes_on_with_what_was_left_parked) {
    execution_stream stream;
    waiter* parked = nullptr;
    ult left = spawn(stream, [&] {
        waiter me;
        parked = &me;
        me.park();
    });
    stream.stop();
    stream.revive();
    parked->unpark();
    left.join();
}

TEST(revive, forgets_the_limit_of_the_last_stop) {
    execution_stream stream;
    EXPECT_TRUE(stream.stop_within(std::chrono::nanoseconds(0)));
    stream.revive();
    std::atomic<bool> go{false};
    post_tasklet(stream, [&] {
        while (!go)
            std::this_thread::yield();
    });
    int ran = 0;
    for (int i = 0; i < 10; ++i)
        post(stream, [&] {
            for (int turn = 0; turn < 1000; ++turn)
                this_task::yield();
            ++ran;
        });
    std::thread stopper([&] { stream.stop(); });
    while (stream.state() != stream_state::stopping)
        std::this_thread::yield();
    go = true;
    stopper.join();
    EXPECT_EQ(ran, 10);
}

TEST(revive, serves_driven_wakeable_and_primary_streams) {
    execution_stream driven(execution_stream_options{.driven = true, .wakeable = true});
    driven.stop();
    driven.revive();
    int ran = 0;
    post(driven, [&] { ++ran; });
    driven.run_ready();
    EXPECT_EQ(ran, 1);

    execution_stream here(execution_stream_options{.primary = true});
    here.stop();
    EXPECT_FALSE(this_task::in_ult());
    here.revive();
    EXPECT_TRUE(this_task::in_ult());
    spawn(here, [&] { ++ran; }).join();
    EXPECT_EQ(ran, 2);
}

TEST(revive, keeps_its_scheduler_and_drops_what_was_posted) {
    shared_fifo_pool mine, above;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{&mine}));
    struct endless final : pool_scheduler {
        explicit endless(pool& which) : pool_scheduler({&which}) {}
        work_unit* next() noexcept override { return nullptr; }
        bool done() const noexcept override { return false; }
    };
    future<void> ended = post_scheduler(mine, std::make_unique<endless>(above));
    stream.stop();
    EXPECT_THROW(ended.get(), error);
    stream.revive();
    spawn(mine, [] {}).join();
    EXPECT_FALSE(above.served());
}

TEST(revive, of_a_stream_that_runs_is_refused) {
    execution_stream stream;
    EXPECT_THROW(stream.revive(), error);
    spawn(stream, [] {}).join();
}

TEST(revive, is_refused_where_another_stream_took_its_pool_and_may_be_tried_again) {
    fifo_pool mine;
    const auto over = [&] { return std::make_unique<basic_scheduler>(std::vector<pool*>{&mine}); };
    execution_stream first(over());
    first.stop();
    {
        execution_stream second(over());
        EXPECT_THROW(first.revive(), error);
        EXPECT_EQ(first.state(), stream_state::stopped);
        spawn(mine, [] {}).join();
    }
    first.revive();
    spawn(mine, [] {}).join();
}

TEST(revive, lets_an_armed_timer_fire) {
    execution_stream stream;
    struct flag final : timer {
        explicit flag(execution_stream& where)
            : timer(where, [](timer& self) noexcept { static_cast<flag&>(self).up = true; }) {}
        std::atomic<bool> up{false};
    } one(stream);
    stream.stop();
    one.arm(std::chrono::steady_clock::now());
    EXPECT_FALSE(one.up);
    stream.revive();
    while (!one.up)
        std::this_thread::yield();
}

}  // namespace
}  // namespace amalgam
