#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/start_sleep.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/stacks/sanitizer.hpp"
#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<scheduler> over(std::vector<pool*> pools) {
    return std::make_unique<basic_scheduler>(std::move(pools));
}

/// One pool, and streams that come and go.
struct removed_stream : testing::Test {
    shared_fifo_pool shared;
    std::optional<execution_stream> first{std::in_place, over({&shared})};
    std::atomic<bool> has_woken{false};

    /// A ULT in a timed wait; returns once it waits, or has waited.
    ult asleep(std::chrono::nanoseconds time) {
        ult made = spawn(shared, [this, time] {
            this_task::sleep_for(time);
            has_woken = true;
        });
        while (!first->next_timer().has_value() && !has_woken)
            std::this_thread::yield();
        return made;
    }
};

TEST_F(removed_stream, leaves_its_timed_waits_to_another_that_serves_the_pool) {
    execution_stream elsewhere;
    ult sleeps = asleep(20ms);
    execution_stream second(over({&shared}));
    first->stop();
    EXPECT_EQ(first->next_timer(), std::nullopt);
    EXPECT_EQ(elsewhere.next_timer(), std::nullopt);
    first.reset();
    sleeps.join();
}

TEST_F(removed_stream, leaves_its_timed_waits_to_one_that_is_made_later) {
    ult sleeps = asleep(20ms);
    first.reset();
    execution_stream second(over({&shared}));
    sleeps.join();
}

TEST_F(removed_stream, may_be_the_second_and_the_third_too) {
    ult sleeps = asleep(200ms);
    std::optional<execution_stream> second(std::in_place, over({&shared}));
    first.reset();
    execution_stream third(over({&shared}));
    second.reset();
    EXPECT_TRUE(third.next_timer().has_value() || has_woken);
    sleeps.join();
    EXPECT_EQ(third.next_timer(), std::nullopt);
}

TEST_F(removed_stream, leaves_many_waits_in_the_order_of_their_times) {
    std::string order;
    std::vector<ult> sleepers;
    manual_clock time;
    first.reset();
    std::optional<execution_stream> old(std::in_place, over({&shared}),
                                        execution_stream_options{.clock = &time, .driven = true});
    for (const char each : std::string("dbecafg")) {
        sleepers.push_back(spawn(shared, [&order, each] {
            this_task::sleep_for((each - 'a' + 1) * 1ms);
            order += each;
        }));
    }
    old->run_ready();
    time.advance(1ms);
    execution_stream next(over({&shared}), {.clock = &time, .driven = true});
    old.reset();
    for (int i = 0; i < 7; ++i) {
        next.run_ready();
        time.advance(1ms);
    }
    EXPECT_EQ(order, "abcdefg");
}

TEST_F(removed_stream, with_a_clock_of_its_own_leaves_the_time_that_is_left) {
    manual_clock old_time, new_time;
    old_time.advance(5h);
    first.reset();
    std::optional<execution_stream> old(
        std::in_place, over({&shared}),
        execution_stream_options{.clock = &old_time, .driven = true});
    bool woke = false;
    ult sleeps = spawn(shared, [&] {
        this_task::sleep_for(3s);
        woke = true;
    });
    old->run_ready();
    old_time.advance(1s);
    execution_stream next(over({&shared}), {.clock = &new_time, .driven = true});
    old.reset();
    ASSERT_EQ(next.next_timer(), new_time.now() + 2s);
    new_time.advance(2s);
    next.run_ready();
    EXPECT_TRUE(woke);
}

TEST_F(removed_stream, leaves_waits_that_end_before_their_time) {
    event happens;
    std::atomic<int> ended = 0;
    std::vector<ult> wait;
    for (int i = 0; i < 50; ++i)
        wait.push_back(spawn(shared, [&] { ended += happens.wait_for(1h); }));
    while (!first->next_timer().has_value())
        std::this_thread::yield();
    execution_stream second(over({&shared}));
    std::thread sets([&] { happens.set(); });
    first.reset();
    sets.join();
    for (ult& each : wait)
        each.join();
    EXPECT_EQ(ended, 50);
    EXPECT_EQ(second.next_timer(), std::nullopt);
}

TEST_F(removed_stream, leaves_the_sleep_of_a_coroutine) {
    execution_stream second(over({&shared}));
    event woke;
    [](execution_stream& on, event& tell) -> detached_coroutine {
        co_await start_sleep_for(on, 5ms);
        tell.set();
    }(*first, woke);
    first.reset();
    woke.wait();
}

TEST_F(removed_stream, keeps_the_timers_of_its_user_which_never_fire) {
    struct noted final : timer {
        explicit noted(execution_stream& where)
            : timer(where, [](timer& self) noexcept { static_cast<noted&>(self).fired = true; }) {}
        std::atomic<bool> fired = false;
    };
    execution_stream second(over({&shared}));
    noted mine(*first);
    mine.arm(first->now() + 1h);
    first->stop();
    EXPECT_EQ(second.next_timer(), std::nullopt);
    EXPECT_TRUE(first->next_timer().has_value());
    EXPECT_TRUE(mine.cancel());
    mine.arm(first->now());
    first.reset();  // too early, but harmless
    EXPECT_FALSE(mine.cancel());
    EXPECT_FALSE(mine.fired);
}

TEST_F(removed_stream, leaves_what_is_ready_in_a_shared_pool_to_the_other) {
    execution_stream second(over({&shared}));
    std::atomic<bool> over_now = false;
    ult busy = spawn(shared, [&] {
        while (!over_now)
            this_task::yield();
    });
    first.reset();  // or it would wait for `busy`
    over_now = true;
    busy.join();
    std::atomic<int> ran = 0;
    for (int i = 0; i < 100; ++i) {
        post(shared, [&] {
            this_task::yield();
            ++ran;
        });
    }
    second.stop();
    EXPECT_EQ(ran, 100);
}

// Each checks whether the other continues.
TEST_F(removed_stream, and_another_that_stops_at_once_leave_nothing_behind) {
    first.reset();
    for (int round = 0; round < 200; ++round) {
        std::atomic<int> ran = 0;
        execution_stream left(over({&shared})), right(over({&shared}));
        for (int i = 0; i < 20; ++i)
            post(shared, [&] { ++ran; });
        std::thread stops([&] { left.stop(); });
        right.stop();
        stops.join();
        ASSERT_EQ(ran, 20);
    }
}

TEST_F(removed_stream, and_the_stream_that_sleeps_beside_it_run_all_that_comes) {
    execution_stream stays(over({&shared}), {.spin = 0ns});
    first.reset();
    for (int round = 0; round < 300; ++round) {
        std::optional<execution_stream> goes(std::in_place, over({&shared}),
                                             execution_stream_options{.spin = 0ns});
        ult one = spawn(shared, [] {});
        goes.reset();
        one.join();
    }
}

// The top scheduler has a waiting ULT, so it is not done.
TEST(stop, runs_what_is_ready_for_the_schedulers_below) {
    for (const bool driven : {false, true}) {
        shared_fifo_pool above;
        event never, stacked;
        int ran = 0;
        execution_stream stream({.driven = driven});
        execution_stream helper(over({&above}), {.driven = true});
        ult waits = spawn(above, [&] {
            stacked.set();
            never.wait();
        });
        auto ended = post_scheduler(stream.main_pool(), over({&above}));
        if (driven) stream.run_ready();
        stacked.wait();
        for (int i = 0; i < 5; ++i) {
            post(stream, [&] {
                this_task::yield();
                ++ran;
            });
        }
        stream.stop();
        EXPECT_EQ(ran, 5);
        EXPECT_EQ(ended.wait(), errc::closed);
        never.set();
        helper.run_ready();
        waits.join();
    }
}

// The rest of its work ran on another stream, and this one has not checked since.
TEST(stop, ends_a_stacked_scheduler_that_is_done_as_at_any_time) {
    shared_fifo_pool above;
    event wanted;
    execution_stream stream({.driven = true});
    execution_stream helper(over({&above}), {.driven = true});
    ult waits = spawn(above, [&] { wanted.wait(); });
    auto ended = post_scheduler(stream.main_pool(), over({&above}));
    stream.run_ready();
    wanted.set();
    helper.run_ready();
    waits.join();
    stream.stop();
    EXPECT_TRUE(ended.wait().ok());
}

TEST(stop, of_a_primary_stream_runs_what_is_ready_for_all_its_schedulers) {
    shared_fifo_pool above;
    int ran = 0;
    event never;
    {
        execution_stream here({.name = "main", .primary = true});
        execution_stream helper(over({&above}), {.driven = true});
        post(above, [&] { never.wait(); });
        auto ended = post_scheduler(here.main_pool(), over({&above}));
        this_task::yield();
        for (int i = 0; i < 5; ++i) {
            post(here, [&] {
                this_task::yield();
                ++ran;
            });
            post(above, [&] {
                this_task::yield();
                ++ran;
            });
        }
        here.stop();
        EXPECT_EQ(ended.wait(), errc::closed);
        EXPECT_FALSE(this_task::in_ult());
        EXPECT_EQ(ran, 10);
        never.set();
        helper.run_ready();
    }
}

TEST(stop, of_a_primary_stream_over_other_pools_runs_what_they_have) {
    shared_fifo_pool left, right;
    int ran = 0;
    execution_stream here(over({&left, &right}), {.name = "main", .primary = true});
    for (pool* each : {static_cast<pool*>(&left), static_cast<pool*>(&right)}) {
        for (int i = 0; i < 5; ++i) {
            post(*each, [&] {
                this_task::yield();
                ++ran;
            });
        }
    }
    here.stop();
    EXPECT_EQ(ran, 10);
}

TEST(stop, of_a_primary_stream_may_have_a_limit) {
    execution_stream here({.name = "main", .primary = true});
    bool ends = false;
    ult busy = spawn([&] {
        while (!ends)
            this_task::yield();
    });
    EXPECT_FALSE(here.stop_within(1ms));
    busy.detach();
}

TEST(stream, a_ult_of_a_static_one_may_end_the_process) {
    const pid_t child = ::fork();
    if (child == 0) {
        static execution_stream stream;
        spawn(stream, [] { std::exit(7); }).join();
    }
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    // LeakSanitizer takes memory held by the parent's other threads for leaked, and has its own
    // code.
    EXPECT_TRUE(WIFEXITED(how) && (WEXITSTATUS(how) == 7 || detail::sanitized));
}

}  // namespace
}  // namespace amalgam
