#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Appends its letter when it fires.
struct lettered final : timer {
    lettered(execution_stream& where, std::string& log, char letter)
        : timer(where,
                [](timer& self) noexcept {
                    auto& mine = static_cast<lettered&>(self);
                    mine.text += mine.name;
                }),
          text(log),
          name(letter) {}
    std::string& text;
    char name;
};

struct virtual_time : testing::Test {
    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};
    std::string fired;

    void advance(std::chrono::nanoseconds by) {
        time.advance(by);
        stream.run_ready();
    }
};
using timer_in_virtual_time = virtual_time;

TEST_F(timer_in_virtual_time, fires_in_order_of_time_then_of_arming) {
    lettered a(stream, fired, 'a'), b(stream, fired, 'b'), c(stream, fired, 'c');
    c.arm(time.now() + 1ms);
    a.arm(time.now() + 2ms);
    b.arm(time.now() + 2ms);
    EXPECT_EQ(stream.next_timer(), time.now() + 1ms);
    advance(1ms);
    EXPECT_EQ(fired, "c");
    advance(5ms);
    EXPECT_EQ(fired, "cab");
    EXPECT_EQ(stream.next_timer(), std::nullopt);
}

TEST_F(timer_in_virtual_time, cancelled_or_destroyed_it_never_fires) {
    lettered a(stream, fired, 'a');
    a.arm(time.now() + 1ms);
    EXPECT_TRUE(a.cancel());
    EXPECT_FALSE(a.cancel());
    {
        lettered b(stream, fired, 'b');
        b.arm(time.now() + 1ms);
    }
    EXPECT_EQ(stream.next_timer(), std::nullopt);
    advance(5ms);
    EXPECT_EQ(fired, "");
}

TEST_F(timer_in_virtual_time, arming_again_moves_it) {
    lettered a(stream, fired, 'a');
    a.arm(time.now() + 1ms);
    a.arm(time.now() + 10ms);
    advance(5ms);
    EXPECT_EQ(fired, "");
    advance(5ms);
    EXPECT_EQ(fired, "a");
}

TEST_F(timer_in_virtual_time, a_callback_may_arm_it_again_or_destroy_it) {
    struct periodic final : timer {
        explicit periodic(execution_stream& where)
            : timer(where, [](timer& self) noexcept {
                  auto* mine = static_cast<periodic*>(&self);
                  if (++*mine->count == 3) {
                      delete mine;
                  } else {
                      mine->arm(execution_stream::current()->now());
                  }
              }) {}
        std::shared_ptr<int> count = std::make_shared<int>(0);
    };
    auto* ticks = new periodic(stream);
    const auto count = ticks->count;
    ticks->arm(time.now());
    stream.run_ready();
    EXPECT_EQ(*count, 3);
}

TEST_F(timer_in_virtual_time, a_callback_may_cancel_itself_and_others_without_waiting) {
    struct canceling final : timer {
        canceling(execution_stream& where, timer& whom)
            : timer(where,
                    [](timer& self) noexcept {
                        auto& mine = static_cast<canceling&>(self);
                        mine.itself = mine.cancel();
                        mine.another_was_armed = mine.another.cancel();
                    }),
              another(whom) {}
        timer& another;
        bool itself = true;
        bool another_was_armed = false;
    };
    lettered behind(stream, fired, 'b');
    canceling first(stream, behind);
    first.arm(time.now() + 1ms);
    behind.arm(time.now() + 1ms);
    advance(1ms);
    EXPECT_FALSE(first.itself);
    EXPECT_TRUE(first.another_was_armed);
    EXPECT_EQ(fired, "");
    EXPECT_FALSE(behind.cancel());
    EXPECT_EQ(stream.next_timer(), std::nullopt);
}

TEST_F(timer_in_virtual_time, sleeping_ults_wake_in_the_order_of_their_deadlines) {
    for (int ms : {30, 10, 20}) {
        post(stream, [&, ms] {
            this_task::sleep_for(std::chrono::milliseconds(ms));
            fired += static_cast<char>('0' + ms / 10);
        });
    }
    stream.run_ready();
    while (const auto next = stream.next_timer()) {
        time.advance_to(*next);
        stream.run_ready();
    }
    EXPECT_EQ(fired, "123");
}

TEST_F(timer_in_virtual_time, many_agree_with_a_sorted_map) {
    struct numbered final : timer {
        numbered(execution_stream& where, std::vector<int>& log, int n)
            : timer(where,
                    [](timer& self) noexcept {
                        auto& mine = static_cast<numbered&>(self);
                        mine.order.push_back(mine.number);
                    }),
              order(log),
              number(n) {}
        std::vector<int>& order;
        int number;
    };
    std::mt19937 random(7);
    std::vector<int> order, expected;
    std::vector<std::unique_ptr<numbered>> timers;
    std::map<std::pair<int, int>, int> model;  // (when, order of arming) -> number
    std::vector<std::pair<int, int>> armed_at(500, {-1, -1});
    for (int i = 0; i < 500; ++i)
        timers.push_back(std::make_unique<numbered>(stream, order, i));
    const auto start = time.now();
    for (int step = 0; step < 5000; ++step) {
        const auto i = static_cast<std::size_t>(random() % 500);
        const bool was_armed = model.erase(armed_at[i]) == 1;
        if (random() % 3 == 0) {
            EXPECT_EQ(timers[i]->cancel(), was_armed);
        } else {
            const int when = static_cast<int>(random() % 1000);
            timers[i]->arm(start + std::chrono::microseconds(when));
            armed_at[i] = {when, step};
            model[armed_at[i]] = static_cast<int>(i);
        }
    }
    for (const auto& [when, number] : model)
        expected.push_back(number);
    advance(1ms);
    EXPECT_EQ(order, expected);
}

TEST(timer, armed_by_another_thread_wakes_a_sleeping_stream) {
    execution_stream stream(execution_stream_options{.spin = 0ns});
    struct sets final : timer {
        sets(execution_stream& where, event& what)
            : timer(where, [](timer& self) noexcept { static_cast<sets&>(self).done.set(); }),
              done(what) {}
        event& done;
    };
    for (int i = 0; i < 50; ++i) {
        event done;
        sets alarm(stream, done);
        alarm.arm(std::chrono::steady_clock::now() + 100us);
        done.wait();
    }
}

TEST(timer, cancel_by_another_thread_waits_for_a_running_callback) {
    execution_stream stream;
    struct slow final : timer {
        slow(execution_stream& where, std::atomic<int>& in)
            : timer(where,
                    [](timer& self) noexcept {
                        auto& mine = static_cast<slow&>(self);
                        ++mine.inside;
                        for (int i = 0; i < 1000; ++i)
                            std::atomic_signal_fence(std::memory_order_seq_cst);
                        --mine.inside;
                    }),
              inside(in) {}
        std::atomic<int>& inside;
    };
    std::atomic<int> inside = 0;
    for (int i = 0; i < 2000; ++i) {
        slow alarm(stream, inside);
        alarm.arm(std::chrono::steady_clock::now());
        if (i % 2 == 0) std::this_thread::yield();
        alarm.cancel();
        ASSERT_EQ(inside, 0);
    }
}

}  // namespace
}  // namespace amalgam
