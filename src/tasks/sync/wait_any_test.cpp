#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/wait_any.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(wait_any, returns_the_index_of_the_first_of_mixed_types_and_leaves_the_others_to_wait_for) {
    promise<int> number;
    promise<std::string> text;
    promise<void> nothing;
    execution_stream stream;  // Ends first, with what sets them.
    future<int> a = number.get_future();
    future<std::string> b = text.get_future();
    future<void> c = nothing.get_future();
    EXPECT_FALSE(test_any(a, b, c));
    post(stream, [&] { text.set_value("two"); });
    EXPECT_EQ(wait_any(a, b, c), 1u);
    EXPECT_EQ(b.get(), "two");
    post(stream, [&] {
        number.set_value(1);
        nothing.set_failure(errc::denied, "no");
    });
    wait_all(a, c);
    EXPECT_TRUE(test_all(a, c));
    EXPECT_EQ(test_any(a, c), 0u);
    EXPECT_EQ(a.get(), 1);
    EXPECT_THROW(c.get(), error);
}

TEST(wait_any, works_in_a_ult_for_more_than_fit_in_place) {
    execution_stream stream;
    std::vector<promise<int>> promises(40);
    std::vector<future<int>> futures;
    for (auto& each : promises)
        futures.push_back(each.get_future());
    ult waits = spawn(stream, [&] {
        EXPECT_EQ(wait_any(any_futures(futures)), 33u);
        EXPECT_EQ(futures[33].get(), 3);
    });
    promises[33].set_value(3);
    waits.join();
}

TEST(wait_any, ends_at_its_deadline_and_the_futures_are_as_before) {
    promise<int> number;
    future<int> a = number.get_future();
    const any_future list[] = {a};
    EXPECT_FALSE(wait_any_until(list, std::chrono::steady_clock::now()));
    EXPECT_FALSE(wait_any_for(list, 1ms));
    EXPECT_FALSE(wait_all_for(list, 1ms));
    number.set_value(5);
    EXPECT_EQ(wait_any_for(list, 1h), 0u);
    EXPECT_TRUE(wait_all_for(list, 1h));
    EXPECT_EQ(a.get(), 5);
}

TEST(wait_any, refuses_what_it_cannot_wait_for) {
    promise<int> number;
    future<int> a = number.get_future();
    EXPECT_EQ(code_of([] { wait_any(std::span<const any_future>()); }), errc::invalid);
    EXPECT_EQ(code_of([&] { wait_any(future<int>()); }), errc::invalid);
    EXPECT_EQ(code_of([&] { wait_any(a, a); }), errc::invalid);
    execution_stream stream;
    promise<errc> told;
    future<errc> in_tasklet = told.get_future();
    tasklet waits =
        spawn_tasklet(stream, [&] { told.set_value(code_of([&] { (void)wait_any(a); })); });
    waits.join();
    EXPECT_EQ(in_tasklet.get(), errc::invalid);
    number.set_value(1);
    EXPECT_EQ(a.get(), 1);
}

TEST(wait_all, takes_a_future_twice) {
    promise<int> number;
    future<int> a = number.get_future();
    EXPECT_FALSE(wait_all_for(std::array<any_future, 2>{a, a}, std::chrono::nanoseconds(1)));
    number.set_value(1);
    wait_all(a, a);
    EXPECT_EQ(a.get(), 1);
}

TEST(wait_any, is_ended_by_a_cancel) {
    execution_stream stream;
    promise<int> number;
    future<int> a = number.get_future();
    std::atomic<bool> canceled{false};
    promise<void> begun;
    future<void> has_begun = begun.get_future();
    ult waits = spawn(stream, [&] {
        begun.set_value();
        try {
            wait_any(a);
        } catch (const error& why) {
            canceled = why.code() == errc::canceled;
        }
    });
    has_begun.get();
    waits.cancel();
    waits.join();
    EXPECT_TRUE(canceled);
    number.set_value(1);
    EXPECT_EQ(a.get(), 1);
}

TEST(wait_any, survives_completions_on_several_threads_at_once) {
    execution_stream one, two;
    for (int i = 0; i < 3000; ++i) {
        promise<int> first, second, third;
        future<int> a = first.get_future(), b = second.get_future(), c = third.get_future();
        post(one, [p = std::move(first)]() mutable { p.set_value(1); });
        post(two, [p = std::move(second)]() mutable { p.set_value(2); });
        const std::size_t which = wait_any(a, b, c);
        ASSERT_LT(which, 2u);
        const any_future list[] = {a, b, c};
        ASSERT_FALSE(wait_all_until(list, std::chrono::steady_clock::now()));
        third.set_value(3);
        wait_all(a, b, c);
        ASSERT_EQ(a.get() + b.get() + c.get(), 6);
    }
}

}  // namespace
}  // namespace amalgam
