#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/start_sleep.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using coroutine_in_turn = driven_stream_test;

task<int> twice(int value) {
    co_return 2 * value;
}

task<int> sum_of(channel<int>& items) {
    int sum = 0;
    while (const auto item = co_await items.start_pop())
        sum += co_await twice(*item);
    co_return sum;
}

task<> throws(event& when) {
    co_await when.start_wait();
    throw std::out_of_range("too far");
}

TEST_F(coroutine_in_turn, a_ult_waits_for_a_task_and_its_stream_goes_on) {
    channel<int> items(1);
    run([&] { seen += std::to_string(sum_of(items).get()); });
    run([&] {
        for (int item : {1, 2, 3})
            items.push(item);
        seen += "pushed ";
        items.close();
    });
    EXPECT_EQ(news(), "pushed 12");
}

TEST(task, a_thread_waits_for_it_too) {
    execution_stream stream;
    channel<int> items(2);
    ult pushes = spawn(stream, [&] {
        for (int i = 1; i <= 100; ++i)
            items.push(i);
        items.close();
    });
    EXPECT_EQ(sum_of(items).get(), 2 * 5050);
}

TEST_F(coroutine_in_turn, a_task_starts_only_when_somebody_waits_for_it) {
    const auto note = [](std::string& log) -> task<> {
        log += "ran";
        co_return;
    };
    {
        const auto never = note(seen);
        EXPECT_TRUE(never.valid());
    }
    EXPECT_EQ(news(), "");
    auto once = note(seen);
    once.get();
    EXPECT_EQ(news(), "ran");
    EXPECT_FALSE(once.valid());
    EXPECT_THROW(once.get(), error);
    EXPECT_THROW(static_cast<void>(spawn_coroutine(stream, std::move(once))), error);
}

TEST_F(coroutine_in_turn, exceptions_reach_who_waits) {
    event now;
    const auto awaits = [](event& when, std::string& log) -> task<std::string> {
        try {
            co_await throws(when);
        } catch (const std::out_of_range& why) {
            log += why.what();
        }
        co_await throws(when);
        co_return "never";
    };
    run([&] { EXPECT_THROW(awaits(now, seen).get(), std::out_of_range); });
    auto later = spawn_coroutine(stream, throws(now));
    run();
    EXPECT_EQ(news(), "");
    now.set();
    run();
    EXPECT_EQ(news(), "too far");
    EXPECT_EQ(later.wait(), errc::handler_failed);
    EXPECT_THROW(later.get(), std::out_of_range);
}

TEST_F(coroutine_in_turn, a_tasklet_cannot_wait_for_a_task_which_then_has_not_run) {
    auto later = twice(1);
    post_tasklet(stream, [&] { EXPECT_THROW(later.get(), error); });
    run();
    EXPECT_EQ(later.get(), 2);
}

TEST_F(coroutine_in_turn, spawned_it_runs_as_a_unit_of_that_stream) {
    const auto where = [](execution_stream*& at) -> task<std::unique_ptr<int>> {
        at = execution_stream::current();
        co_return std::make_unique<int>(7);
    };
    execution_stream* at = nullptr;
    auto later = spawn_coroutine(stream, where(at));
    EXPECT_FALSE(later.ready());
    run();
    EXPECT_EQ(at, &stream);
    EXPECT_EQ(*later.get(), 7);
    fifo_pool unserved;
    EXPECT_THROW(static_cast<void>(spawn_coroutine(unserved, where(at))), error);
    EXPECT_THROW(static_cast<void>(continue_in(unserved)), error);
}

TEST(task, goes_on_where_it_is_told_to) {
    execution_stream left, right;
    const auto travel = [&]() -> task<bool> {
        co_await continue_in(left.main_pool());
        const bool was_left = execution_stream::current() == &left;
        co_await continue_in(right.main_pool());
        co_return was_left&& execution_stream::current() == &right;
    };
    for (int i = 0; i < 500; ++i)
        ASSERT_TRUE(travel().get());
    ASSERT_TRUE(spawn(left, [&] { EXPECT_TRUE(travel().get()); }).joinable());
}

TEST_F(coroutine_in_turn, sleeps_by_the_clock_of_the_stream_it_names) {
    const auto sleeps = [](execution_stream& where, std::string& log) -> task<> {
        co_await start_sleep_for(where, 10ms);
        EXPECT_EQ(execution_stream::current(), &where);
        log += "a";
        co_await start_sleep_until(where, where.now());  // due at once
        log += "b";
    };
    auto later = spawn_coroutine(stream, sleeps(stream, seen));
    run();
    advance(9ms);
    EXPECT_EQ(news(), "");
    advance(1ms);
    EXPECT_EQ(news(), "ab");
}

TEST(task, sleeps_and_goes_on_on_a_running_stream) {
    execution_stream stream;
    const auto sleeps = [&]() -> task<> {
        for (int i = 0; i < 200; ++i)
            co_await start_sleep_for(stream, 1us);
    };
    const auto before = std::chrono::steady_clock::now();
    sleeps().get();
    EXPECT_GE(std::chrono::steady_clock::now() - before, 200us);
}

TEST_F(coroutine_in_turn, waits_for_a_condition_with_its_mutex) {
    mutex guard;
    condition_variable changed;
    bool ready = false;
    const auto waits = [&](char name) -> task<> {
        co_await guard.start_lock();
        std::unique_lock hold(guard, std::adopt_lock);
        while (!ready)
            co_await changed.start_wait(hold);
        EXPECT_TRUE(hold.owns_lock());
        EXPECT_FALSE(guard.try_lock());
        seen += name;
    };
    auto a = spawn_coroutine(stream, waits('a'));
    auto b = spawn_coroutine(stream, waits('b'));
    run();
    {
        const std::lock_guard hold(guard);
        changed.notify_one();  // checks again and waits again, behind b
        run();
    }
    run();
    EXPECT_EQ(news(), "");
    {
        const std::lock_guard hold(guard);
        ready = true;
        changed.notify_all();
        run();
        EXPECT_EQ(news(), "");  // we hold the mutex
    }
    run();
    EXPECT_EQ(news(), "ba");
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST(condition_variable, to_wait_without_the_mutex_is_refused) {
    mutex guard;
    condition_variable changed;
    std::unique_lock hold(guard, std::defer_lock);
    EXPECT_THROW(changed.wait(hold), error);
    EXPECT_THROW(static_cast<void>(changed.start_wait(hold)), error);
}

task<long> depth(int levels) {
    if (levels == 0) co_return 0;
    co_return 1 + co_await depth(levels - 1);
}

TEST(task, waits_for_tasks_that_wait_for_tasks) {
    EXPECT_EQ(depth(1000).get(), 1000);
    execution_stream stream;
    EXPECT_EQ(spawn_coroutine(stream, depth(1000)).get(), 1000);
}

}  // namespace
}  // namespace amalgam
