#include <memory>
#include <mutex>
#include <thread>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using timed_mutex = driven_stream_test;
using recursive_lock = driven_stream_test;

TEST_F(timed_mutex, gives_up_at_the_deadline_and_is_free_for_others) {
    mutex guard;
    guard.lock();
    run([&] { seen += guard.try_lock_for(10ms) ? "locked " : "late "; });
    advance(9ms);
    EXPECT_EQ(news(), "");
    advance(1ms);
    EXPECT_EQ(news(), "late ");
    guard.unlock();  // it looks for waiters and finds none
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST_F(timed_mutex, one_that_gives_up_leaves_the_turn_to_those_behind) {
    mutex guard;
    guard.lock();
    run([&] { seen += guard.try_lock_for(10ms) ? "a" : "late "; });
    run([&] {
        seen += guard.try_lock_for(1h) ? "b" : "late ";
        guard.unlock();
    });
    advance(10ms);
    EXPECT_EQ(news(), "late ");
    guard.unlock();
    run();
    EXPECT_EQ(news(), "b");
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST_F(timed_mutex, one_that_is_handed_the_mutex_in_time_has_it) {
    mutex guard;
    guard.lock();
    run([&] { seen += guard.try_lock_for(10ms) ? "locked" : "late"; });
    guard.unlock();
    advance(10ms);  // handed over before, though it runs only now
    EXPECT_EQ(news(), "locked");
    EXPECT_FALSE(guard.try_lock());
    guard.unlock();
}

detached_coroutine lock_in_turn(mutex& guard, char name, std::string& seen) {
    co_await guard.start_lock();
    const std::lock_guard hold(guard, std::adopt_lock);
    seen += name;
}

TEST_F(timed_mutex, coroutines_and_ults_get_it_in_the_order_of_arrival) {
    mutex guard;
    guard.lock();
    run([&] { lock_in_turn(guard, 'a', seen); });
    run([&] {
        const std::lock_guard hold(guard);
        seen += 'b';
        this_task::yield();
    });
    run([&] { lock_in_turn(guard, 'c', seen); });
    EXPECT_EQ(news(), "");
    guard.unlock();
    run();
    EXPECT_EQ(news(), "abc");
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST(mutex, may_die_with_the_last_who_locked_it) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto guard = std::make_unique<mutex>();
        int users = 2;
        const auto leave = [&users, i, at = guard.get()] {
            if (i % 2 == 0) {
                at->lock();
            } else {
                while (!at->try_lock_for(i % 50 * 100ns)) {
                    this_task::yield();
                }
            }
            const bool last = --users == 0;
            at->unlock();
            return last;
        };
        bool other_was_last = false;
        ult other = spawn(stream, [&] {
            other_was_last = leave();
            if (other_was_last) guard.reset();
        });
        if (leave()) guard.reset();
        other.join();
        ASSERT_EQ(guard, nullptr);
    }
}

TEST_F(recursive_lock, is_free_when_its_owner_unlocked_it_as_often) {
    recursive_mutex guard;
    const auto other_gets_it = [&] {
        bool got = false;
        run([&] {
            got = guard.try_lock();
            if (got) guard.unlock();
        });
        return got;
    };
    guard.lock();
    guard.lock();
    EXPECT_TRUE(guard.try_lock());
    EXPECT_TRUE(guard.try_lock_for(1ms));
    for (int i = 0; i < 4; ++i) {
        EXPECT_FALSE(other_gets_it());
        guard.unlock();
    }
    EXPECT_TRUE(other_gets_it());
}

TEST_F(recursive_lock, belongs_to_a_ult_and_not_to_its_stream) {
    recursive_mutex guard;
    run([&] {
        const std::lock_guard hold(guard);
        this_task::sleep_for(5ms);
        const std::lock_guard again(guard);
        seen += "a ";
    });
    run([&] {
        EXPECT_FALSE(guard.try_lock());
        EXPECT_FALSE(guard.try_lock_for(2ms));
        seen += "late ";
        const std::lock_guard hold(guard);
        seen += "b ";
    });
    advance(2ms);
    advance(3ms);
    EXPECT_EQ(news(), "late a b ");
}

TEST(recursive_mutex, keeps_ults_and_threads_apart) {
    execution_stream left, right;
    recursive_mutex guard;
    long counter = 0;
    const auto count = [&] {
        for (int i = 0; i < 2000; ++i) {
            const std::lock_guard hold(guard);
            const long before = counter;
            if (i % 100 == 0) this_task::yield();
            const std::lock_guard again(guard);
            counter = before + 1;
        }
    };
    ult a = spawn(left, count);
    ult b = spawn(right, count);
    ult c = spawn(right, count);
    count();
    a.join();
    b.join();
    c.join();
    EXPECT_EQ(counter, 4 * 2000);
}

TEST(recursive_mutex, may_die_with_the_last_who_locked_it) {
    execution_stream stream;
    for (int i = 0; i < 1000; ++i) {
        auto guard = std::make_unique<recursive_mutex>();
        int users = 2;
        const auto leave = [&guard, &users, at = guard.get()] {
            at->lock();
            at->lock();
            const bool last = --users == 0;
            at->unlock();
            at->unlock();
            if (last) guard.reset();
        };
        ult other = spawn(stream, leave);
        leave();
        other.join();
        ASSERT_EQ(guard, nullptr);
    }
}

TEST_F(timed_mutex, waiters_are_served_by_priority_then_in_order_of_arrival) {
    mutex guard;
    guard.lock();
    const auto wait = [&](char name, lock_priority turn) {
        run([&guard, this, name, turn] {
            guard.lock(turn);
            seen += name;
            guard.unlock();
        });
    };
    wait('e', lock_priority::low);
    wait('c', lock_priority::normal);
    wait('a', lock_priority::high);
    wait('f', lock_priority::low);
    run([&] {
        const std::lock_guard hold(guard);  // normal
        seen += 'd';
    });
    wait('b', lock_priority::high);
    guard.unlock();
    run();
    EXPECT_EQ(news(), "abcdef");
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST_F(timed_mutex, unlock_and_yield_runs_the_next_owner_before_others) {
    mutex guard;
    post(stream, [&] {
        guard.lock();
        this_task::yield();  // the other waits for it
        post(stream, [&] { seen += 'b'; });
        EXPECT_TRUE(guard.unlock_and_yield());
        seen += 'c';
    });
    post(stream, [&] {
        guard.lock();
        seen += 'a';
        EXPECT_FALSE(guard.unlock_and_yield());  // nobody waits
    });
    run();
    EXPECT_EQ(news(), "abc");
}

TEST_F(recursive_lock, unlock_and_yield_hands_over_once_it_is_free) {
    recursive_mutex guard;
    post(stream, [&] {
        guard.lock(lock_priority::low);
        guard.lock(lock_priority::high);
        this_task::yield();
        EXPECT_FALSE(guard.unlock_and_yield());
        seen += 'a';
        EXPECT_TRUE(guard.unlock_and_yield());
        seen += 'c';
    });
    post(stream, [&] {
        guard.lock();
        seen += 'b';
        guard.unlock();
    });
    run();
    EXPECT_EQ(news(), "abc");
}

TEST(mutex, unlock_and_yield_by_or_to_a_plain_thread_just_unlocks) {
    mutex guard;
    guard.lock();
    EXPECT_FALSE(guard.unlock_and_yield());
    execution_stream stream;
    int turns = 0;
    const auto work = [&] {
        for (int i = 0; i < 2000; ++i) {
            guard.lock();
            ++turns;
            guard.unlock_and_yield();
        }
    };
    ult one = spawn(stream, work), other = spawn(stream, work);
    work();
    one.join();
    other.join();
    EXPECT_EQ(turns, 6000);
}

}  // namespace
}  // namespace amalgam
