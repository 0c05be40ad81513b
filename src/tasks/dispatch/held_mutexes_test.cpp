// Linked with a dispatcher.cpp that checks, see CMakeLists.txt.

#include "tasks/dispatch/held_mutexes.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// One stream run by the test's own thread, and the log.
struct held_mutexes : testing::Test {
    void SetUp() override {
        default_logger().set_sink([this](const log_record& line) {
            if (line.level == log_level::error) said.push_back(to_text(line));
        });
    }
    void TearDown() override { default_logger().set_sink({}); }

    template <typename Function>
    void run_in_ult(Function body, ult_options options = {}) {
        post(stream, std::move(body), options);
        stream.run_ready();
    }
    bool says(std::size_t line, const std::string& text) const {
        return line < said.size() && said[line].find(text) != std::string::npos;
    }

    execution_stream stream{execution_stream_options{.driven = true}};
    std::vector<std::string> said;
};

TEST_F(held_mutexes, across_a_yield_are_reported_with_the_name_and_the_place) {
    run_in_ult(
        [] {
            std::mutex one;
            const std::lock_guard hold(one);
            this_task::yield();
        },
        {.name = "keeper"});
    ASSERT_EQ(said.size(), 1u);
    EXPECT_TRUE(says(0, "holds a system mutex")) << said[0];
    EXPECT_TRUE(says(0, "ult=keeper to=yield held=1 where=")) << said[0];
    EXPECT_TRUE(says(0, "held_mutexes_test+0x")) << said[0];
}

TEST_F(held_mutexes, across_a_wait_are_reported) {
    event never;
    run_in_ult([&] {
        std::mutex one, two;
        const std::scoped_lock hold(one, two);
        never.wait_until(std::chrono::steady_clock::time_point::min());
    });
    ASSERT_EQ(said.size(), 1u);
    EXPECT_TRUE(says(0, "ult=unnamed to=wait held=2")) << said[0];
}

TEST_F(held_mutexes, across_a_join_are_reported) {
    run_in_ult([&] {
        std::mutex one;
        ult other = spawn(stream, [] {});
        const std::lock_guard hold(one);
        other.join();
    });
    ASSERT_EQ(said.size(), 1u);
    EXPECT_TRUE(says(0, "to=join held=1")) << said[0];
}

TEST_F(held_mutexes, at_the_end_of_a_ult_are_reported) {
    pthread_mutex_t forgotten = PTHREAD_MUTEX_INITIALIZER;
    run_in_ult([&] { pthread_mutex_lock(&forgotten); });
    run_in_ult([] { this_task::yield(); });  // its count is separate
    ASSERT_EQ(said.size(), 1u);
    EXPECT_TRUE(says(0, "to=end held=1")) << said[0];
    pthread_mutex_unlock(&forgotten);
}

TEST_F(held_mutexes, are_reported_once_for_each_place) {
    volatile int rounds = 5;
    const auto body = [&] {
        std::mutex one;
        const std::lock_guard hold(one);
        for (int i = 0; i < rounds; ++i)
            this_task::yield();
        for (int i = 0; i < rounds; ++i)
            this_task::sleep_for(0ns);
    };
    run_in_ult(body);
    run_in_ult(body);
    ASSERT_EQ(said.size(), 2u);
    EXPECT_TRUE(says(0, "to=yield"));
    EXPECT_TRUE(says(1, "to=wait"));
}

TEST_F(held_mutexes, of_every_kind_are_counted) {
    run_in_ult([] {
        std::recursive_mutex recursive;
        std::timed_mutex timed;
        std::shared_mutex shared, exclusive;
        std::shared_timed_mutex shared_timed;
        recursive.lock();
        EXPECT_TRUE(recursive.try_lock());
        EXPECT_TRUE(timed.try_lock_for(1h));
        shared.lock_shared();
        exclusive.lock();
        EXPECT_TRUE(shared_timed.try_lock_shared_for(1h));
        this_task::yield();
        recursive.unlock();
        recursive.unlock();
        timed.unlock();
        shared.unlock_shared();
        exclusive.unlock();
        shared_timed.unlock_shared();
        this_task::yield();
    });
    ASSERT_EQ(said.size(), 1u);
    EXPECT_TRUE(says(0, "held=6")) << said[0];
}

TEST_F(held_mutexes, are_not_what_was_unlocked_before_nor_what_could_not_be_locked) {
    std::mutex taken;
    const std::lock_guard hold(taken);
    run_in_ult([&] {
        std::mutex one;
        { const std::lock_guard briefly(one); }
        std::thread([&] { EXPECT_FALSE(taken.try_lock()); }).join();
        EXPECT_FALSE(pthread_mutex_trylock(taken.native_handle()) == 0);
        this_task::yield();
    });
    EXPECT_EQ(said.size(), 0u);
}

TEST_F(held_mutexes, of_one_ult_are_not_laid_to_another) {
    post(stream, [] {
        std::mutex one;
        const std::lock_guard hold(one);
        for (int i = 0; i < 3; ++i)
            this_task::yield();
    });
    for (int i = 0; i < 3; ++i) {
        post(stream, [] { this_task::yield(); }, {.name = "innocent"});
    }
    stream.run_ready();
    for (const std::string& line : said)
        EXPECT_EQ(line.find("innocent"), std::string::npos) << line;
}

TEST_F(held_mutexes, of_the_thread_that_drives_a_stream_are_not_its_ults) {
    std::mutex own;
    const std::lock_guard hold(own);
    run_in_ult([] { this_task::yield(); });
    execution_stream inner{execution_stream_options{.driven = true}};
    run_in_ult([&] {
        std::mutex outer;
        const std::lock_guard hold_outer(outer);
        post(inner, [] { this_task::yield(); });
        inner.run_ready();
    });
    EXPECT_EQ(said.size(), 0u);
}

TEST_F(held_mutexes, count_right_after_waiting_for_a_condition_variable_of_the_system) {
    run_in_ult([] {
        std::mutex lock;
        std::condition_variable changed;
        bool done = false;
        std::thread other;
        {
            std::unique_lock hold(lock);
            other = std::thread([&] {
                {
                    const std::lock_guard set(lock);
                    done = true;
                }
                changed.notify_one();
            });
            changed.wait(hold, [&] { return done; });
        }
        this_task::yield();
        other.join();
    });
    EXPECT_EQ(said.size(), 0u);
}

TEST_F(held_mutexes, are_reported_on_the_smallest_stack_too) {
    run_in_ult(
        [] {
            std::mutex one;
            const std::lock_guard hold(one);
            this_task::yield();
        },
        {.stack_bytes = 16 * 1024});
    EXPECT_EQ(said.size(), 1u);
}

TEST_F(held_mutexes, inside_the_runtime_are_nobody_s) {
    {
        execution_stream left, right;
        std::vector<ult> made;
        for (int i = 0; i < 500; ++i) {
            made.push_back(
                spawn(left, [&right] { spawn(right, [] { this_task::yield(); }).join(); }));
        }
        made.clear();  // joins
        ult stops = spawn(left, [&right] { right.stop(); });
        stops.join();
    }
    EXPECT_EQ(said.size(), 0u);
}

}  // namespace
}  // namespace amalgam
