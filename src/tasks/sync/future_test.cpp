#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(future, brings_the_value_from_a_ult_to_a_thread) {
    execution_stream stream;
    promise<std::unique_ptr<int>> brings;
    auto later = brings.get_future();
    post(stream, [brings = std::move(brings)]() mutable {
        this_task::yield();
        brings.set_value(std::make_unique<int>(42));
    });
    EXPECT_TRUE(later.wait().ok());
    EXPECT_TRUE(later.ready());
    EXPECT_EQ(*later.get(), 42);
    EXPECT_FALSE(later.valid());
}

TEST(future, brings_the_value_from_a_thread_to_a_ult) {
    execution_stream stream;
    for (int i = 0; i < 2000; ++i) {
        promise<int> brings;
        auto later = brings.get_future();
        ult asks = spawn(stream, [&] { EXPECT_EQ(later.get(), i); });
        brings.set_value(i);
        asks.join();
    }
}

TEST(future, of_void_tells_that_it_happened) {
    promise<void> brings;
    auto later = brings.get_future();
    EXPECT_FALSE(later.ready());
    brings.set_value();
    EXPECT_TRUE(later.ready());
    later.get();
}

TEST(future, a_failure_is_a_status_to_wait_and_an_error_to_get) {
    promise<int> brings;
    auto later = brings.get_future();
    brings.set_failure(errc::disconnected, "the peer is gone; look it up again");
    EXPECT_EQ(later.wait(), errc::disconnected);
    try {
        later.get();
        FAIL() << "get() returned";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::disconnected);
        EXPECT_STREQ(why.what(), "the peer is gone; look it up again");
    }
}

TEST(future, an_exception_keeps_its_type) {
    promise<int> brings;
    auto later = brings.get_future();
    brings.set_exception(std::make_exception_ptr(std::out_of_range("too far")));
    EXPECT_EQ(later.wait(), errc::handler_failed);
    EXPECT_THROW(later.get(), std::out_of_range);
}

TEST(future, a_broken_promise_is_a_failure) {
    future<int> later;
    {
        promise<int> brings;
        later = brings.get_future();
    }
    EXPECT_EQ(later.wait(), errc::canceled);
    EXPECT_THROW(later.get(), error);
}

TEST(future, bad_use_is_refused) {
    future<int> empty;
    EXPECT_THROW(static_cast<void>(empty.wait()), error);
    EXPECT_THROW(static_cast<void>(empty.ready()), error);
    promise<int> brings;
    auto later = brings.get_future();
    EXPECT_THROW(static_cast<void>(brings.get_future()), error);
    brings.set_value(1);
    EXPECT_THROW(brings.set_value(2), error);
    EXPECT_EQ(later.get(), 1);
}

TEST(future, a_wait_ends_at_its_deadline_and_can_be_repeated) {
    manual_clock time;
    execution_stream stream(execution_stream_options{.clock = &time, .driven = true});
    promise<int> brings;
    auto later = brings.get_future();
    std::string seen;
    post(stream, [&] {
        seen += later.wait_for(10ms) ? "ready " : "late ";
        seen += later.wait_for(10ms) ? "ready" : "late";
    });
    stream.run_ready();
    time.advance(10ms);
    stream.run_ready();
    EXPECT_EQ(seen, "late ");
    brings.set_value(1);
    stream.run_ready();
    EXPECT_EQ(seen, "late ready");
}

TEST(future, only_an_unfinished_one_asks_to_cancel_and_only_once) {
    int asked = 0;
    const auto hook = [](void* count) noexcept { ++*static_cast<int*>(count); };
    promise<int> dropped, cancelled, finished;
    for (auto* each : {&dropped, &cancelled, &finished})
        each->on_abandon(hook, &asked);

    { const auto gone = dropped.get_future(); }
    EXPECT_EQ(asked, 1);
    {
        auto told = cancelled.get_future();
        told.cancel();
        told.cancel();
    }
    EXPECT_EQ(asked, 2);
    {
        const auto served = finished.get_future();
        finished.set_value(1);
    }
    EXPECT_EQ(asked, 2);
}

/// A minimal coroutine: it starts at once and is not awaited.
struct fire_and_forget {
    struct promise_type {
        fire_and_forget get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

fire_and_forget add(future<int> left, future<int> right, promise<int> sum) {
    try {
        const int a = co_await std::move(left);
        const int b = co_await std::move(right);
        sum.set_value(a + b);
    } catch (const error& why) {
        sum.set_failure(why.code().code, why.what());
    }
}

TEST(co_await, resumes_on_the_stream_that_completes) {
    execution_stream stream(execution_stream_options{.driven = true});
    promise<int> left, right, sum;
    auto total = sum.get_future();
    add(left.get_future(), right.get_future(), std::move(sum));
    post(stream, [&] { left.set_value(2); });
    post(stream, [&] {
        right.set_value(3);
        EXPECT_FALSE(total.ready());  // resumed as a separate unit, not inside set_value()
    });
    stream.run_ready();
    ASSERT_TRUE(total.ready());
    EXPECT_EQ(total.get(), 5);
}

TEST(co_await, goes_straight_on_when_ready_and_throws_failures) {
    promise<int> left, right, sum;
    auto total = sum.get_future();
    left.set_value(2);
    add(left.get_future(), right.get_future(), std::move(sum));
    right.set_failure(errc::timed_out, "too late");
    EXPECT_EQ(total.wait(), errc::timed_out);
}

TEST(co_await, completed_by_a_thread_goes_on_where_it_waited) {
    execution_stream stream;
    promise<int> brings;
    std::atomic<execution_stream*> resumed_on{nullptr};
    promise<void> done;
    auto finished = done.get_future();
    spawn(stream, [&] {
        [](future<int> value, std::atomic<execution_stream*>& where,
           promise<void> end) -> fire_and_forget {
            co_await std::move(value);
            where = execution_stream::current();
            end.set_value();
        }(brings.get_future(), resumed_on, std::move(done));
    }).join();
    brings.set_value(1);
    finished.get();
    EXPECT_EQ(resumed_on, &stream);
}

TEST(future, races_of_completion_deadline_and_drop_are_clean) {
    execution_stream stream;
    for (int i = 0; i < 1000; ++i) {
        promise<int> brings;
        auto later = brings.get_future();
        post(stream, [brings = std::move(brings), i]() mutable { brings.set_value(i); });
        if (i % 3 == 0) continue;  // dropped
        if (later.wait_until(std::chrono::steady_clock::now() + 2us) || i % 3 == 1) {
            EXPECT_EQ(later.get(), i);
        }
    }
}

TEST(future, has_its_value_aligned_as_the_type_asks_for) {
    struct alignas(64) wide {
        wide() = default;
        wide(wide&& other) noexcept
            : was_aligned(other.was_aligned && reinterpret_cast<std::uintptr_t>(&other) % 64 == 0) {
        }
        bool was_aligned = true;
    };
    std::vector<promise<wide>> all(9);
    for (promise<wide>& each : all) {
        auto later = each.get_future();
        each.set_value(wide());
        EXPECT_TRUE(later.get().was_aligned);
    }
}

TEST(promise, an_exception_that_is_none_is_refused) {
    promise<int> brings;
    future<int> later = brings.get_future();
    EXPECT_THROW(brings.set_exception(nullptr), error);
    brings.set_value(1);
    EXPECT_EQ(later.get(), 1);
}

}  // namespace
}  // namespace amalgam
