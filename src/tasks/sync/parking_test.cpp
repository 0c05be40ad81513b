#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/slow_build.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(waiter, an_early_permit_makes_park_return_at_once) {
    waiter me;
    me.unpark();
    me.park();
    me.unpark();
    EXPECT_TRUE(me.park_until(std::chrono::steady_clock::now() - 1s));
}

TEST(waiter, says_whether_a_thread_or_a_ult_parks) {
    EXPECT_FALSE(waiter().parks_unit());
    execution_stream stream;
    spawn(stream, [] { EXPECT_TRUE(waiter().parks_unit()); }).join();
}

TEST(waiter, holds_at_most_one_permit) {
    waiter me;
    me.unpark();
    me.unpark();
    me.park();
    EXPECT_FALSE(me.park_until(std::chrono::steady_clock::now() + 1ms));
}

TEST(waiter, a_thread_and_a_ult_keep_to_their_deadline) {
    const auto times_out = [] {
        const auto deadline = std::chrono::steady_clock::now() + 5ms;
        waiter me;
        EXPECT_FALSE(me.park_until(deadline));
        EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    };
    times_out();
    execution_stream stream;
    spawn(stream, times_out).join();
}

TEST(waiter, unparking_on_the_same_stream_resumes_in_order) {
    execution_stream stream(execution_stream_options{.driven = true});
    std::vector<waiter*> parked;
    std::string order;
    for (char c : {'a', 'b', 'c'}) {
        post(stream, [&, c] {
            waiter me;
            parked.push_back(&me);
            me.park();
            order += c;
        });
    }
    stream.run_ready();
    EXPECT_EQ(order, "");
    ASSERT_EQ(parked.size(), 3u);
    post(stream, [&] {
        for (waiter* each : {parked[2], parked[0], parked[1]})
            each->unpark();
    });
    stream.run_ready();
    EXPECT_EQ(order, "cab");
}

/// Two that pass one permit back and forth. Each waiter is destroyed after its round, so that
/// sanitizers detect an unpark() that touches it too late.
struct ping_pong {
    static constexpr int rounds = conformance::slow_build ? 2000 : 20000;
    std::atomic<waiter*> slots[2]{};
    long passed[2]{};

    void play(int side) {
        for (int i = 0; i < rounds; ++i) {
            auto mine = std::make_unique<waiter>();
            slots[side].store(mine.get(), std::memory_order_release);
            waiter* other = nullptr;
            while ((other = slots[1 - side].exchange(nullptr, std::memory_order_acq_rel)) ==
                   nullptr) {
                this_task::yield();
                std::this_thread::yield();  // the other one may wait for this core
            }
            other->unpark();
            mine->park();
            ++passed[side];
        }
    }
};

TEST(waiter, survives_races_between_streams) {
    execution_stream left, right;
    ping_pong game;
    ult a = spawn(left, [&] { game.play(0); });
    ult b = spawn(right, [&] { game.play(1); });
    a.join();
    b.join();
    EXPECT_EQ(game.passed[0], ping_pong::rounds);
    EXPECT_EQ(game.passed[1], ping_pong::rounds);
}

TEST(waiter, survives_races_between_a_stream_and_a_thread) {
    execution_stream stream;
    ping_pong game;
    ult a = spawn(stream, [&] { game.play(0); });
    game.play(1);
    a.join();
    EXPECT_EQ(game.passed[0], ping_pong::rounds);
    EXPECT_EQ(game.passed[1], ping_pong::rounds);
}

TEST(waiter, a_permit_that_races_with_the_deadline_is_never_lost) {
    execution_stream stream, other;
    int in_time = 0, late = 0;
    spawn(stream, [&] {
        for (int i = 0; i < 3000; ++i) {
            auto me = std::make_unique<waiter>();
            std::atomic<bool> gave = false;
            ult giver = spawn(other, [&] {
                me->unpark();
                gave.store(true, std::memory_order_release);
            });
            if (me->park_until(std::chrono::steady_clock::now() + 3us)) {
                ++in_time;
            } else {
                me->park();  // it will still come
                ++late;
            }
            giver.join();
            ASSERT_TRUE(gave.load(std::memory_order_acquire));
        }
    }).join();
    EXPECT_EQ(in_time + late, 3000);
}

}  // namespace
}  // namespace amalgam
