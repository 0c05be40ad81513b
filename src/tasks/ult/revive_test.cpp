#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct revival : testing::Test {
    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};
};

TEST_F(revival, a_revived_ult_is_the_same_one_with_a_new_body) {
    std::string ran;
    ult one = spawn(stream, [&] { ran += 'a'; }, {.name = "phoenix"});
    const std::uint64_t id = one.id();
    const ult_ref name = one.ref();
    stream.run_ready();
    execution_stream other(execution_stream_options{.driven = true});
    one.revive(other, [&] {
        ran += 'b';
        EXPECT_EQ(this_task::id(), id);
        for (const ult_info& each : list_ults())
            EXPECT_TRUE(each.state != ult_state::running || each.name == "phoenix");
    });
    EXPECT_EQ(one.state(), ult_state::created);
    EXPECT_EQ(name.state(), ult_state::created);
    EXPECT_EQ(other.main_pool().ults(), 1u);
    other.run_ready();
    EXPECT_EQ(ran, "ab");
    EXPECT_EQ(one.id(), id);
    one.join();
}

TEST_F(revival, many_lives_leave_nothing_behind) {
    ult_local<int> mine;
    auto held = std::make_shared<int>(0);
    ult one = spawn(stream, [] {});
    stream.run_ready();
    for (int i = 0; i < 100; ++i) {
        one.revive(stream, [&, held] {
            EXPECT_EQ(*mine, 0);
            *mine = i + 1;
            ++*held;
            this_task::yield();
        });
        stream.run_ready();
        EXPECT_EQ(one.state(), ult_state::ended);
    }
    EXPECT_EQ(*held, 100);
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

TEST_F(revival, a_cancel_or_resume_of_the_last_life_is_not_the_next_ones) {
    ult one = spawn(stream, [] {});
    stream.run_ready();
    one.cancel();
    one.resume();
    bool suspended = false;
    one.revive(stream, [&] {
        suspended = true;
        this_task::suspend();
        suspended = false;
    });
    stream.run_ready();
    EXPECT_TRUE(suspended);
    one.resume();
    stream.run_ready();
    EXPECT_FALSE(suspended);
    EXPECT_EQ(code_of([&] { one.join(); }), errc::ok);
}

TEST_F(revival, an_exception_of_the_last_life_is_logged_and_not_the_next_ones) {
    std::string told;
    default_logger().set_sink([&](const log_record& line) { told += to_text(line); });
    ult one = spawn(stream, [] { throw std::runtime_error("of the first life"); });
    tasklet other = spawn_tasklet(stream, [] { throw std::runtime_error("of a tasklet"); });
    stream.run_ready();
    one.revive(stream, [] {});
    other.revive(stream, [] {});
    stream.run_ready();
    EXPECT_NO_THROW(one.join());
    EXPECT_NO_THROW(other.join());
    default_logger().set_sink({});
    EXPECT_NE(told.find("of the first life"), std::string::npos) << told;
    EXPECT_NE(told.find("of a tasklet"), std::string::npos) << told;
}

TEST_F(revival, nothing_is_logged_of_what_was_canceled_before_it_began) {
    std::string told;
    default_logger().set_sink([&](const log_record& line) { told += to_text(line); });
    ult ults[3];
    tasklet tasklets[3];
    for (int i = 0; i < 3; ++i) {
        ults[i] = spawn(stream, [] {});
        tasklets[i] = spawn_tasklet(stream, [] {});
        ults[i].cancel();
        tasklets[i].cancel();
    }
    ults[0].detach();
    tasklets[0].detach();
    stream.run_ready();
    ults[1].detach();
    tasklets[1].detach();
    ults[2].revive(stream, [] {});
    tasklets[2].revive(stream, [] {});
    ults[2].cancel();
    tasklets[2].cancel();
    stream.run_ready();
    ults[2] = {};
    tasklets[2] = {};
    default_logger().set_sink({});
    EXPECT_EQ(told, "");
}

TEST_F(revival, one_that_exited_or_was_canceled_unbegun_or_has_a_large_body_can_be_revived) {
    ult exits = spawn(stream, [] { this_task::exit(); });
    ult unbegun = spawn(stream, [] {});
    unbegun.cancel();
    stream.run_ready();
    std::array<char, 4096> large{};
    large.back() = 'x';
    int ran = 0;
    exits.revive(stream, [large, &ran] { ran += large.back() == 'x'; });
    unbegun.revive(stream, [&ran] { ++ran; });
    stream.run_ready();
    EXPECT_EQ(ran, 2);
}

TEST_F(revival, is_refused_before_the_end_and_where_nothing_runs) {
    fifo_pool unserved;
    shared_fifo_pool shared;
    ult one = spawn(stream, [] {}), empty;
    ult pinned = spawn(stream, [] {}, {.pinned = true});
    tasklet task = spawn_tasklet(stream, [] {}), no_task;
    EXPECT_EQ(code_of([&] { one.revive(stream, [] {}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { task.revive(stream, [] {}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.revive(stream, [] {}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { no_task.revive(stream, [] {}); }), errc::invalid);
    stream.run_ready();
    EXPECT_EQ(code_of([&] { one.revive(unserved, [] {}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { pinned.revive(shared, [] {}); }), errc::invalid);
    EXPECT_EQ(one.state(), ult_state::ended);
    one.join();
}

TEST_F(revival, one_whose_pool_was_destroyed_is_refused) {
    auto own = std::make_unique<execution_stream>(execution_stream_options{.driven = true});
    event never;
    ult one = spawn(*own, [&] { never.wait(); });
    own->run_ready();
    own.reset();
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_EQ(one.home(), nullptr);
    EXPECT_EQ(code_of([&] { one.revive(stream, [] {}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { one.join(); }), errc::canceled);
}

TEST(revival_between_threads, loses_no_life) {
    execution_stream left, right;
    std::atomic<int> lives = 0;
    ult one = spawn(left, [&] { ++lives; });
    for (int i = 0; i < 3000; ++i) {
        one.wait();
        one.revive(i % 2 == 0 ? right : left, [&] { ++lives; });
    }
    one.join();
    EXPECT_EQ(lives, 3001);
}

TEST_F(revival, a_tasklet_tells_its_state_and_is_joined_without_waiting) {
    tasklet one;
    ult_state inside{};
    one = spawn_tasklet(stream, [&] { inside = one.state(); });
    EXPECT_EQ(one.state(), ult_state::ready);
    EXPECT_FALSE(one.try_join());
    EXPECT_FALSE(one.join_for(0ms));
    stream.run_ready();
    EXPECT_EQ(inside, ult_state::running);
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_TRUE(one.try_join());
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_EQ(code_of([&] { one.try_join(); }), errc::invalid);
}

TEST_F(revival, a_timed_join_of_a_tasklet_in_a_ult) {
    execution_stream other(execution_stream_options{.driven = true});
    tasklet one = spawn_tasklet(other, [] {});
    std::string order;
    ult joins = spawn(stream, [&] {
        if (!one.join_for(1ms)) order += "late ";
        if (one.join_for(1h)) order += "joined";
    });
    stream.run_ready();
    time.advance(2ms);
    stream.run_ready();
    EXPECT_EQ(order, "late ");
    other.run_ready();
    stream.run_ready();
    EXPECT_EQ(order, "late joined");
}

TEST_F(revival, a_canceled_tasklet_never_runs_and_its_body_is_destroyed) {
    auto held = std::make_shared<int>(0);
    tasklet one = spawn_tasklet(stream, [held] { ++*held; });
    tasklet other = spawn_tasklet(stream, [held] { ++*held; });
    one.cancel();
    one.cancel();
    stream.run_ready();
    other.cancel();  // too late
    EXPECT_EQ(code_of([&] { one.join(); }), errc::canceled);
    EXPECT_EQ(code_of([&] { other.join(); }), errc::ok);
    EXPECT_EQ(*held, 1);
    EXPECT_EQ(held.use_count(), 1);
}

TEST_F(revival, a_tasklet_is_revived_with_a_body_of_any_size) {
    std::string ran;
    tasklet one = spawn_tasklet(stream, [&] { ran += 'a'; });
    stream.run_ready();
    std::array<char, 300> large{};
    large.back() = 'b';
    one.wait();
    one.revive(stream, [&ran, large] { ran += large.back(); });
    EXPECT_EQ(one.state(), ult_state::ready);
    stream.run_ready();
    one.revive(stream.main_pool(), [&] { ran += 'c'; });
    stream.run_ready();
    one.join();
    EXPECT_EQ(ran, "abc");
}

}  // namespace
}  // namespace amalgam
