#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(mutex, keeps_ults_and_threads_apart) {
    execution_stream left, right;
    mutex guard;
    long counter = 0;
    const auto count = [&] {
        for (int i = 0; i < 3000; ++i) {
            const std::lock_guard hold(guard);
            const long before = counter;
            if (i % 100 == 0) this_task::yield();
            counter = before + 1;
        }
    };
    std::vector<ult> ults;
    for (int i = 0; i < 4; ++i) {
        ults.push_back(spawn(left, count));
        ults.push_back(spawn(right, count));
    }
    std::thread outside(count);
    count();
    outside.join();
    ults.clear();
    EXPECT_EQ(counter, 10 * 3000);
}

TEST(mutex, is_handed_over_in_the_order_of_arrival) {
    execution_stream stream(execution_stream_options{.driven = true});
    mutex guard;
    std::string order;
    for (char c : {'a', 'b', 'c'}) {
        post(stream, [&, c] {
            for (int i = 0; i < 2; ++i) {
                const std::lock_guard hold(guard);
                order += c;
                this_task::yield();  // with the mutex held: the others must still get it
            }
        });
    }
    stream.run_ready();
    EXPECT_EQ(order, "abcabc");
}

TEST(mutex, try_lock_never_waits_and_std_lock_takes_several) {
    mutex a, b;
    EXPECT_TRUE(a.try_lock());
    EXPECT_FALSE(a.try_lock());
    a.unlock();
    {
        const std::scoped_lock both(a, b);
        EXPECT_FALSE(b.try_lock());
    }
    EXPECT_TRUE(b.try_lock());
    b.unlock();
}

/// A bounded queue of one slot, the classic use of two condition variables.
struct slot {
    mutex guard;
    condition_variable filled, emptied;
    std::deque<int> items;

    void put(int item) {
        std::unique_lock hold(guard);
        emptied.wait(hold, [&] { return items.empty(); });
        items.push_back(item);
        filled.notify_one();
    }
    int take() {
        std::unique_lock hold(guard);
        filled.wait(hold, [&] { return !items.empty(); });
        const int item = items.front();
        items.pop_front();
        emptied.notify_one();
        return item;
    }
};

TEST(condition_variable, carries_items_between_ults_and_threads) {
    execution_stream left, right;
    slot box;
    std::atomic<long> sum = 0;
    const auto produce = [&] {
        for (int i = 1; i <= 1000; ++i)
            box.put(i);
    };
    const auto consume = [&] {
        for (int i = 1; i <= 1000; ++i)
            sum += box.take();
    };
    ult a = spawn(left, produce);
    ult b = spawn(right, consume);
    std::thread c(produce);
    consume();
    c.join();
    a.join();
    b.join();
    EXPECT_EQ(sum, 2 * 500500);
}

TEST(condition_variable, notify_all_wakes_everybody_and_notify_one_the_first) {
    execution_stream stream(execution_stream_options{.driven = true});
    mutex guard;
    condition_variable changed;
    std::string woken;
    for (char c : {'a', 'b', 'c', 'd'}) {
        post(stream, [&, c] {
            std::unique_lock hold(guard);
            changed.wait(hold);
            woken += c;
        });
    }
    stream.run_ready();
    changed.notify_one();
    stream.run_ready();
    EXPECT_EQ(woken, "a");
    changed.notify_all();
    stream.run_ready();
    EXPECT_EQ(woken, "abcd");
}

TEST(condition_variable, wakes_nobody_who_was_not_notified) {
    manual_clock time;
    execution_stream stream(execution_stream_options{.clock = &time, .driven = true});
    fifo_pool elsewhere;
    execution_stream other(std::make_unique<basic_scheduler>(std::vector<pool*>{&elsewhere}),
                           {.driven = true});
    mutex guard;
    condition_variable changed, another;
    int woken = 0;
    std::vector<ult> waiters;
    for (int i = 0; i < 3; ++i) {
        waiters.push_back(spawn(stream, [&] {
            std::unique_lock hold(guard);
            changed.wait(hold);
            ++woken;
        }));
    }
    stream.run_ready();
    for (int i = 0; i < 100; ++i) {
        another.notify_all();
        post(stream, [&] {
            const std::lock_guard hold(guard);
            this_task::sleep_for(1ms);
        });
        stream.run_ready();
        time.advance(1ms);
        stream.run_ready();
    }
    waiters[1].migrate(elsewhere);
    other.run_ready();
    stream.run_ready();
    EXPECT_EQ(woken, 0);
    for (int notified = 1; notified <= 3; ++notified) {
        changed.notify_one();
        stream.run_ready();
        other.run_ready();
        EXPECT_EQ(woken, notified);
    }
    for (ult& each : waiters)
        each.join();
}

TEST(condition_variable, may_die_before_those_that_were_notified_have_returned) {
    execution_stream stream(execution_stream_options{.driven = true});
    mutex guard;
    auto changed = std::make_unique<condition_variable>();
    int woken = 0;
    for (int i = 0; i < 4; ++i) {
        post(stream, [&] {
            std::unique_lock hold(guard);
            changed->wait(hold);
            ++woken;
        });
    }
    stream.run_ready();
    changed->notify_one();
    changed->notify_all();
    changed.reset();
    EXPECT_EQ(woken, 0);
    stream.run_ready();
    EXPECT_EQ(woken, 4);
}

TEST(condition_variable, a_deadline_ends_the_wait_with_the_mutex_held) {
    manual_clock time;
    execution_stream stream(execution_stream_options{.clock = &time, .driven = true});
    mutex guard;
    condition_variable changed;
    std::string ends;
    const auto wait = [&](char c) {
        std::unique_lock hold(guard);
        const bool late = changed.wait_for(hold, 10ms) == std::cv_status::timeout;
        EXPECT_FALSE(guard.try_lock());
        ends += late ? c : '!';
    };
    post(stream, [&] { wait('a'); });
    post(stream, [&] { wait('b'); });
    stream.run_ready();
    changed.notify_one();
    time.advance(10ms);
    stream.run_ready();
    EXPECT_EQ(ends, "!b");
    changed.notify_all();  // the list of waiters is empty
    EXPECT_EQ(stream.run_ready(), 0u);
}

TEST(event, releases_everybody_and_stays_set_until_reset) {
    execution_stream stream;
    event happened;
    std::atomic<int> through = 0;
    std::vector<ult> waiting;
    for (int i = 0; i < 10; ++i) {
        waiting.push_back(spawn(stream, [&] {
            happened.wait();
            ++through;
        }));
    }
    std::thread outside([&] {
        happened.wait();
        ++through;
    });
    happened.set();
    waiting.clear();
    outside.join();
    EXPECT_EQ(through, 11);
    happened.wait();
    happened.reset();
    EXPECT_FALSE(happened.wait_for(1ms));
}

TEST(event, may_die_as_soon_as_wait_returned) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto happened = std::make_unique<event>();
        post(stream, [at = happened.get()] { at->set(); });
        happened->wait();
    }
}

}  // namespace
}  // namespace amalgam
