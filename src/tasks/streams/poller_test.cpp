#include <chrono>
#include <cstddef>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

// How often run_ready() of a driven stream polls.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A queue that units and tests fill by counting; says whether it has work, if `says` is true.
struct counted_source final : poller {
    std::size_t poll() noexcept override {
        ++polls;
        return std::exchange(waiting, 0);
    }
    bool has_work() noexcept override { return !says || waiting != 0; }
    bool has_more() noexcept override { return !says_more && has_work(); }
    int wait_handle() const noexcept override { return -1; }
    bool prepare_to_sleep() noexcept override { return waiting == 0; }

    std::size_t waiting = 0;
    int polls = 0;
    bool says = true;
    bool says_more = false;  ///< That it has none.
};

struct counting final : timer {
    counting(execution_stream& where, int& in)
        : timer(where, [](timer& self) noexcept { ++static_cast<counting&>(self).count; }),
          count(in) {}
    int& count;
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

TEST_F(driven_poller, is_polled_once_when_it_has_work_and_not_at_all_when_nothing_has) {
    EXPECT_EQ(stream.run_ready(), 0U);
    EXPECT_EQ(source.polls, 0);
    source.waiting = 3;
    EXPECT_EQ(stream.run_ready(), 3U);
    EXPECT_EQ(source.polls, 1);
    post(stream, [] {});
    EXPECT_EQ(stream.run_ready(), 1U);
    EXPECT_EQ(source.polls, 2);
}

TEST_F(driven_poller, that_comes_while_nothing_is_ready_is_asked_from_the_next_run_on) {
    counted_source other;
    other.waiting = 2;
    stream.add_poller(other);
    EXPECT_EQ(stream.run_ready(), 2U);
    stream.remove_poller(other);
    other.waiting = 1;
    EXPECT_EQ(stream.run_ready(), 0U);
}

TEST_F(driven_poller, of_a_stream_that_nobody_drives_is_removed_where_nothing_may_wait) {
    execution_stream other{execution_stream_options{.driven = true}};
    counted_source others;
    other.add_poller(others);
    other.run_ready();
    others.polls = 0;
    bool removed = false;
    post_tasklet(stream, [&] {
        other.remove_poller(others);
        removed = true;
    });
    stream.run_ready();
    EXPECT_TRUE(removed);
    others.waiting = 1;
    EXPECT_EQ(other.run_ready(), 0U);
    EXPECT_EQ(others.polls, 0);
}

TEST_F(driven_poller, without_work_does_not_keep_a_timer_from_firing) {
    int fired = 0;
    counting alarm(stream, fired);
    alarm.arm(time.now() + 1ms);
    EXPECT_EQ(stream.run_ready(), 0U);
    time.advance(1ms);
    EXPECT_EQ(stream.run_ready(), 1U);
    EXPECT_EQ(fired, 1);
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

TEST_F(driven_poller, without_more_ends_the_run_and_what_came_since_is_for_the_next) {
    source.says_more = true;
    source.waiting = 1;
    EXPECT_EQ(stream.run_ready(), 1U);
    EXPECT_EQ(source.polls, 1);
    post(stream, [this] { source.waiting = 2; });
    // The unit runs before the poll, and so what it leaves is found.
    EXPECT_EQ(stream.run_ready(), 3U);
    EXPECT_EQ(source.polls, 2);
    struct posting final : poller {
        explicit posting(counted_source& what) : other(what) {}
        std::size_t poll() noexcept override { return std::exchange(other.waiting, 5) == 1; }
        bool has_work() noexcept override { return false; }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        counted_source& other;
    } later(source);
    stream.add_poller(later);
    source.waiting = 1;
    stream.run_ready();
    EXPECT_EQ(source.waiting, 5U);
    stream.remove_poller(later);
    EXPECT_EQ(stream.run_ready(), 5U);
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
    counting alarm(stream, fired);
    post(stream, [&] { alarm.arm(time.now()); });
    stream.run_ready();
    EXPECT_EQ(fired, 1);
    post(stream, [&] { alarm.arm(time.now() + 1ms); });
    stream.run_ready();
    EXPECT_EQ(fired, 1);
}

}  // namespace
}  // namespace amalgam
