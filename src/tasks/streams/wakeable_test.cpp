#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

// Driven streams whose caller sleeps for them.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

constexpr execution_stream_options wakeable() {
    return {.driven = true, .wakeable = true};
}

bool readable(execution_stream& stream, int for_milliseconds) {
    pollfd wakes{stream.wait_handle(), POLLIN, 0};
    return ::poll(&wakes, 1, for_milliseconds) == 1;
}

/// Runs until a check finds nothing: a ring may come late and without need.
void settle(execution_stream& stream) {
    while (stream.run_ready() != 0 || readable(stream, 0))
        continue;
}

TEST(wakeable_stream, its_handle_is_readable_at_first_and_then_only_when_there_is_work) {
    execution_stream stream(wakeable());
    EXPECT_TRUE(readable(stream, 0));
    settle(stream);
    EXPECT_FALSE(readable(stream, 0));
    bool ran = false;
    post(stream, [&] { ran = true; });
    EXPECT_TRUE(readable(stream, 0));
    stream.run_ready();
    EXPECT_TRUE(ran);
    settle(stream);
    stream.wake();
    EXPECT_TRUE(readable(stream, 0));
}

TEST(wakeable_stream, a_handle_asked_for_late_tells_of_what_came_before) {
    for (const bool stopped : {false, true}) {
        execution_stream stream(wakeable());
        bool ran = false, slept = false;
        stream.run_ready();
        post(stream, [&] { ran = true; });
        post(stream, [&] {
            this_task::sleep_for(2ms);
            slept = true;
        });
        stream.run_ready();  // Nobody waits for the handle yet.
        EXPECT_TRUE(ran);
        if (stopped) {
            stream.stop();
            EXPECT_FALSE(readable(stream, 0));
            continue;
        }
        while (!slept) {
            ASSERT_TRUE(readable(stream, -1));  // The timer's, too.
            stream.run_ready();
        }
        settle(stream);
        std::thread([&] { post(stream, [&] { ran = false; }); }).join();
        ASSERT_TRUE(readable(stream, -1));
        stream.run_ready();
        EXPECT_FALSE(ran);
    }
}

TEST(wakeable_stream, stays_readable_while_a_limited_run_leaves_work) {
    execution_stream stream(wakeable());
    int ran = 0;
    for (int i = 0; i < 10; ++i)
        post(stream, [&] { ++ran; });
    while (ran < 10) {
        EXPECT_TRUE(readable(stream, 0));
        EXPECT_LE(stream.run_ready(3), 4u);
    }
    settle(stream);
}

TEST(wakeable_stream, a_timer_makes_it_readable_when_it_is_due) {
    execution_stream stream(wakeable());
    bool slept = false;
    post(stream, [&] {
        this_task::sleep_for(5ms);
        slept = true;
    });
    int looks = 0;
    while (!slept) {
        ASSERT_TRUE(readable(stream, -1));
        stream.run_ready();
        ++looks;
    }
    EXPECT_LT(looks, 20);
    settle(stream);
    EXPECT_FALSE(readable(stream, 0));
}

TEST(wakeable_stream, pushes_from_threads_all_wake_it) {
    execution_stream stream(wakeable());
    constexpr int each = 2000;
    std::atomic<int> joined{0};
    std::thread threads[3];
    for (std::thread& one : threads) {
        one = std::thread([&] {
            for (int i = 0; i < each; ++i)
                spawn(stream, [] {}).join();
            ++joined;
            stream.wake();
        });
    }
    while (joined < 3) {
        readable(stream, -1);
        stream.run_ready();
    }
    for (std::thread& one : threads)
        one.join();
}

TEST(wakeable_stream, is_quiet_once_stopped) {
    execution_stream stream(wakeable());
    post(stream, [] { this_task::sleep_for(1ms); });
    stream.run_ready();
    stream.stop();
    EXPECT_FALSE(readable(stream, 10));
}

TEST(wakeable_stream, is_driven_by_the_steady_clock_or_refused) {
    manual_clock virtual_time;
    EXPECT_THROW(execution_stream({.wakeable = true}), error);
    EXPECT_THROW(execution_stream({.clock = &virtual_time, .driven = true, .wakeable = true}),
                 error);
    execution_stream driven({.driven = true});
    EXPECT_THROW(driven.wait_handle(), error);
}

TEST(execution_stream, that_spins_is_told_to_sleep_and_that_sleeps_to_spin) {
    execution_stream stream({.spin = always_spin});
    const auto cpu_while_idle = [&] {
        const auto before = stream.cpu_time();
        spawn(stream, [] { this_task::sleep_for(100ms); }).join();
        return stream.cpu_time() - before;
    };
    stream.set_spin(0ns);
    EXPECT_LT(cpu_while_idle(), 20ms);
    stream.set_spin(always_spin);
    const auto before = stream.cpu_time();
    while (stream.cpu_time() - before < 50ms)  // If idle, it would sleep and never get there.
        std::this_thread::yield();
    stream.set_spin(adaptive_spin);
    EXPECT_LT(cpu_while_idle(), 20ms);
}

}  // namespace
}  // namespace amalgam
