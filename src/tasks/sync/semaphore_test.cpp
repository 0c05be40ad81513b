#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct semaphore_in_turn : driven_stream_test {
    void post_acquire(char name, std::size_t count) {
        run([this, name, count] {
            permits.acquire(count);
            seen += name;
        });
    }
    semaphore permits{0};
};

TEST_F(semaphore_in_turn, serves_in_the_order_of_arrival_whatever_each_asks_for) {
    post_acquire('a', 3);
    post_acquire('b', 1);
    permits.release(2);
    run();
    EXPECT_EQ(news(), "");
    EXPECT_FALSE(permits.try_acquire(1));  // two are available, but others came before
    EXPECT_EQ(permits.available(), 2u);
    permits.release(2);
    run();
    EXPECT_EQ(news(), "ab");
    EXPECT_EQ(permits.available(), 0u);
}

TEST_F(semaphore_in_turn, one_that_gives_up_lets_those_behind_it_have_what_is_there) {
    run([&] { seen += permits.try_acquire_for(10ms, 3) ? "a" : "late "; });
    post_acquire('b', 1);
    post_acquire('c', 1);
    permits.release(2);
    run();
    EXPECT_EQ(news(), "");
    advance(10ms);
    EXPECT_EQ(news(), "late bc");
    EXPECT_EQ(permits.available(), 0u);
}

TEST_F(semaphore_in_turn, permits_that_come_in_time_count_though_it_runs_late) {
    run([&] { seen += permits.try_acquire_for(10ms) ? "got it" : "late"; });
    permits.release();
    advance(10ms);
    EXPECT_EQ(news(), "got it");
    EXPECT_EQ(permits.available(), 0u);
}

TEST_F(semaphore_in_turn, one_that_is_canceled_lets_those_behind_it_have_what_is_there) {
    ult first = spawn(stream, [&] { permits.acquire(3); });
    post_acquire('b', 1);
    permits.release(2);
    first.cancel();
    run();
    EXPECT_EQ(news(), "b");
    EXPECT_EQ(permits.available(), 1u);
    EXPECT_THROW(first.join(), error);
}

detached_coroutine acquire_in_turn(semaphore& permits, std::size_t count, std::string& seen) {
    co_await permits.start_acquire(count);
    seen += 'c';
}

TEST_F(semaphore_in_turn, coroutines_wait_in_the_same_line) {
    post_acquire('a', 1);
    run([&] { acquire_in_turn(permits, 2, seen); });
    post_acquire('b', 1);
    permits.release(3);
    EXPECT_EQ(news(), "");
    run();
    EXPECT_EQ(news(), "ac");
    permits.release();
    run();
    EXPECT_EQ(news(), "b");
}

TEST_F(semaphore_in_turn, a_tasklet_may_release_and_try) {
    post_acquire('a', 2);
    post_tasklet(stream, [&] {
        EXPECT_FALSE(permits.try_acquire());
        EXPECT_THROW(permits.acquire(), error);
        permits.release(3);
        EXPECT_TRUE(permits.try_acquire());
    });
    run();
    EXPECT_EQ(news(), "a");
}

TEST(semaphore, lets_no_more_in_than_it_has_permits) {
    execution_stream left, right;
    semaphore permits(3);
    std::atomic<int> inside = 0;
    const auto work = [&] {
        for (std::size_t i = 0; i < 2000; ++i) {
            const std::size_t count = 1 + i % 3;
            permits.acquire(count);
            EXPECT_LE(inside += static_cast<int>(count), 3);
            if (i % 64 == 0) this_task::yield();
            inside -= static_cast<int>(count);
            permits.release(count);
        }
    };
    std::vector<ult> ults;
    for (int i = 0; i < 3; ++i) {
        ults.push_back(spawn(left, work));
        ults.push_back(spawn(right, work));
    }
    work();
    ults.clear();
    EXPECT_EQ(permits.available(), 3u);
}

TEST(semaphore, may_die_as_soon_as_acquire_returned) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto permits = std::make_unique<semaphore>(0);
        post(stream, [at = permits.get()] { at->release(); });
        permits->acquire();
    }
}

}  // namespace
}  // namespace amalgam
