#include <chrono>
#include <cstddef>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

// How often run_ready() of a driven stream polls.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A queue that units and tests fill by counting; says whether it has more, if `says` is true.
struct counted_source final : poller {
    std::size_t poll() noexcept override {
        ++polls;
        return std::exchange(waiting, 0);
    }
    bool may_have_more() const noexcept override { return !says || waiting != 0; }
    int wait_handle() const noexcept override { return -1; }
    bool prepare_to_sleep() noexcept override { return waiting == 0; }

    std::size_t waiting = 0;
    int polls = 0;
    bool says = true;
};

struct driven_poller : testing::Test {
    driven_poller() {
        stream.add_poller(source);
        stream.run_ready();  // From here on the stream's list is what was added.
        source.polls = 0;
    }
    ~driven_poller() override { stream.remove_poller(source); }

    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};
    counted_source source;
};

TEST_F(driven_poller, that_has_no_more_is_polled_once_in_a_run) {
    EXPECT_EQ(stream.run_ready(), 0U);
    EXPECT_EQ(source.polls, 1);
    source.waiting = 3;
    EXPECT_EQ(stream.run_ready(), 3U);
    EXPECT_EQ(source.polls, 2);
    post(stream, [] {});
    EXPECT_EQ(stream.run_ready(), 1U);
    EXPECT_EQ(source.polls, 3);
}

TEST_F(driven_poller, that_does_not_say_is_polled_until_it_finds_nothing) {
    source.says = false;
    source.waiting = 3;
    EXPECT_EQ(stream.run_ready(), 3U);
    EXPECT_EQ(source.polls, 2);
}

TEST_F(driven_poller, gets_what_units_leave_for_it_in_the_same_run) {
    post(stream, [this] { source.waiting = 1; });
    EXPECT_EQ(stream.run_ready(), 2U);
    EXPECT_EQ(source.waiting, 0U);
}

TEST_F(driven_poller, is_no_reason_to_end_a_run_while_units_are_ready) {
    int turns = 0;
    post(stream, [&turns] {
        for (; turns < 1000; ++turns)
            this_task::yield();
    });
    stream.run_ready();
    EXPECT_EQ(turns, 1000);
}

TEST_F(driven_poller, is_no_reason_to_end_a_run_before_a_timer_that_is_due) {
    int fired = 0;
    struct counting final : timer {
        counting(execution_stream& where, int& in)
            : timer(where, [](timer& self) noexcept { ++static_cast<counting&>(self).count; }),
              count(in) {}
        int& count;
    } alarm(stream, fired);
    post(stream, [&] { alarm.arm(time.now()); });
    stream.run_ready();
    EXPECT_EQ(fired, 1);
    post(stream, [&] { alarm.arm(time.now() + 1ms); });
    stream.run_ready();
    EXPECT_EQ(fired, 1);
}

}  // namespace
}  // namespace amalgam
