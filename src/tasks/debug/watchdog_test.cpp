#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/watchdog.hpp>

#include "contains.hpp"
#include "core/returning_child_testing.hpp"
#include "tasks/debug/trace_testing.hpp"
#include "tasks/stacks/suspended_stack.hpp"

namespace amalgam {

AMALGAM_IN_TRACES void hold_the_stream(const std::function<void()>& how) {
    how();
    asm volatile("");  // no tail call
}

namespace {

using namespace std::chrono_literals;

/// Its thread looks only every 15 minutes; the test calls look() itself.
struct watchdog_looks : testing::Test {
    manual_clock time;
    execution_stream stream{
        execution_stream_options{.name = "lab", .clock = &time, .driven = true}};
    std::vector<std::string> told;
    watchdog dog{{.holds_stream_for = 1h,
                  .tell = [this](std::string_view what) { told.emplace_back(what); },
                  .clock = &time}};

    void look_after(std::chrono::nanoseconds passed) {
        time.advance(passed);
        dog.look();
    }
};

TEST_F(watchdog_looks, a_ult_that_holds_its_stream_is_told_once) {
    ult task = spawn(stream,
                     [&] {
                         dog.look();
                         look_after(59min);
                         EXPECT_EQ(told.size(), 0u);
                         hold_the_stream([&] { look_after(1min); });
                         EXPECT_EQ(told.size(), 1u);
                         look_after(10h);
                         EXPECT_EQ(told.size(), 1u);
                     },
                     {.name = "greedy"});
    stream.run_ready();
    task.join();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(contains(told[0], "'greedy'") && contains(told[0], "'lab'")) << told[0];
#if defined(AMALGAM_OWN_STACK_SWITCH)
    EXPECT_TRUE(contains(told[0], "hold_the_stream")) << told[0];
#endif
}

TEST_F(watchdog_looks, a_switch_begins_a_new_time) {
    ult task = spawn(stream, [&] {
        for (int i = 0; i < 100; ++i) {  // more than a batch
            look_after(59min);
            this_task::yield();
        }
        EXPECT_EQ(told.size(), 0u);
        for (int i = 0; i < 2; ++i) {
            dog.look();
            look_after(1h);
            this_task::yield();
        }
        EXPECT_EQ(told.size(), 2u);
    });
    stream.run_ready();
    task.join();
}

TEST_F(watchdog_looks, waits_that_nothing_can_end_are_told_once) {
    event never;
    mutex guard;
    guard.lock();
    ult first = spawn(stream, [&] { never.wait(); }, {.name = "first"});
    ult second = spawn(stream, [&] { const std::lock_guard hold(guard); }, {.name = "second"});
    stream.run_ready();
    dog.look();
    look_after(59min);
    EXPECT_EQ(told.size(), 0u);
    look_after(1min);
    look_after(1h);
    ASSERT_EQ(told.size(), 2u);
    std::sort(told.begin(), told.end());
    EXPECT_TRUE(contains(told[0], "'first' has waited for event")) << told[0];
    EXPECT_TRUE(contains(told[1], "'second' has waited for mutex")) << told[1];
    never.set();
    guard.unlock();
    stream.run_ready();
    first.join();
    second.join();
}

TEST_F(watchdog_looks, waits_are_told_again_after_something_has_moved) {
    event first_time, second_time;
    ult waits = spawn(stream, [&] {
        first_time.wait();
        second_time.wait();
    });
    stream.run_ready();
    dog.look();
    look_after(1h);
    EXPECT_EQ(told.size(), 1u);
    first_time.set();
    stream.run_ready();
    dog.look();
    EXPECT_EQ(told.size(), 1u);
    look_after(1h);
    EXPECT_EQ(told.size(), 2u);
    second_time.set();
    stream.run_ready();
    waits.join();
}

TEST_F(watchdog_looks, a_timer_or_a_poller_or_ready_work_can_end_waits) {
    event happens;
    ult waits = spawn(stream, [&] { happens.wait(); });
    ult sleeps = spawn(stream, [&] { this_task::sleep_for(100h); });
    stream.run_ready();
    dog.look();
    look_after(2h);
    EXPECT_EQ(told.size(), 0u);

    struct quiet final : poller {
        std::size_t poll() noexcept override { return 0; }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
    } outside;
    sleeps.cancel();
    stream.run_ready();
    stream.add_poller(outside);
    dog.look();
    look_after(2h);
    EXPECT_EQ(told.size(), 0u);

    stream.remove_poller(outside);
    ult ready = spawn(stream, [] {});
    dog.look();
    look_after(2h);
    EXPECT_EQ(told.size(), 0u);

    happens.set();
    stream.run_ready();
    waits.join();
    ready.join();
    EXPECT_THROW(sleeps.join(), error);
}

TEST_F(watchdog_looks, what_tell_throws_comes_out_of_look_and_the_rest_is_told) {
    int calls = 0;
    watchdog throwing{{.holds_stream_for = 1h,
                       .tell =
                           [&](std::string_view) {
                               ++calls;
                               throw std::runtime_error("heard enough");
                           },
                       .clock = &time}};
    execution_stream inner(execution_stream_options{.name = "inner", .driven = true});
    ult outer = spawn(stream, [&] {
        post(inner, [&] {  // Both hold their streams now.
            throwing.look();
            time.advance(1h);
            EXPECT_THROW(throwing.look(), std::runtime_error);
            EXPECT_EQ(calls, 2);
            throwing.look();
            EXPECT_EQ(calls, 2);
        });
        inner.run_ready();
    });
    stream.run_ready();
    outer.join();
}

TEST_F(watchdog_looks, by_several_threads_at_once_tell_once) {
    std::mutex lock;
    int calls = 0;
    watchdog asked{{.holds_stream_for = 1h,
                    .tell =
                        [&](std::string_view) {
                            const std::lock_guard hold(lock);
                            ++calls;
                        },
                    .clock = &time}};
    ult task = spawn(stream, [&] {
        for (int round = 1; round <= 20; ++round) {
            asked.look();
            time.advance(1h);
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; ++i)
                threads.emplace_back([&] { asked.look(); });
            for (std::thread& each : threads)
                each.join();
            EXPECT_EQ(calls, round);
            this_task::yield();
        }
    });
    stream.run_ready();
    task.join();
}

TEST(watchdog_thread, logs_what_tell_throws_and_looks_on) {
    std::atomic<int> logged{0};
    default_logger().set_sink([&](const log_record& line) {
        if (to_text(line).find("heard enough") != std::string::npos) ++logged;
    });
    {
        execution_stream stream;
        const watchdog dog({.holds_stream_for = 1ms, .tell = [&](std::string_view) {
                                throw std::runtime_error("heard enough");
                            }});
        while (logged < 2) {
            const int before = logged;
            spawn(stream, [&] {
                while (logged == before)
                    continue;
            }).join();
        }
    }
    default_logger().set_sink({});
}

TEST(watchdog_thread, has_no_child_that_looks_on) {
    execution_stream stream;
    core_testing::child_that_returns child;
    const watchdog dog({.holds_stream_for = 1ms, .tell = [&](std::string_view) {
                            if (!child.forked()) child.fork();
                        }});
    spawn(stream, [&] {
        while (!child.forked())
            continue;
    }).join();
    EXPECT_TRUE(child.was_ended());
}

TEST(watchdog_thread, finds_a_held_stream_by_itself) {
    execution_stream stream;
    std::atomic<bool> told{false};
    const watchdog dog({.holds_stream_for = 1ms, .tell = [&](std::string_view what) {
                            if (contains(std::string(what), "'greedy'")) told = true;
                        }});
    ult task = spawn(stream,
                     [&] {
                         while (!told)
                             continue;
                     },
                     {.name = "greedy"});
    task.join();
    EXPECT_TRUE(told);
}

TEST(watchdog_thread, finds_a_wait_that_nothing_can_end_while_the_streams_sleep) {
    execution_stream stream;
    event happens;
    std::atomic<bool> told{false};
    ult task = spawn(stream, [&] { happens.wait(); }, {.name = "lost"});
    const watchdog dog({.holds_stream_for = 1ms, .tell = [&](std::string_view what) {
                            if (contains(std::string(what), "'lost'")) told = true;
                        }});
    while (!told)
        std::this_thread::yield();
    happens.set();
    task.join();
}

TEST(watchdog_limit, must_be_positive) {
    EXPECT_THROW(watchdog({.holds_stream_for = 0s}), error);
}

}  // namespace
}  // namespace amalgam
