#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <ucontext.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/debug/stream_list.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct numbered final : work_unit {
    explicit numbered(int n = 0, int from = 0) noexcept
        : work_unit([](work_unit&) noexcept {}), number(n), origin(from) {}
    int number;
    int origin;
};

/// Pushes and pops at random, from the serving stream or outside, compared with a deque.
void compare_with_deque(bool on_stream, unsigned seed) {
    fifo_pool first, pool;
    execution_stream stream(
        std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&first, &pool}),
        execution_stream_options{.driven = true});
    std::vector<numbered> units(64);
    std::vector<numbered*> free;
    for (auto& each : units)
        free.push_back(&each);
    std::deque<numbered*> model;
    std::uint64_t taken = 0;
    std::mt19937 random(seed);

    const auto play = [&] {
        for (int i = 0; i < 20000; ++i) {
            ASSERT_EQ(pool.size(), model.size());
            ASSERT_EQ(pool.empty(), model.empty());
            ASSERT_EQ(pool.taken(), taken);
            if (random() % 2 == 0 && !free.empty()) {
                numbered& unit = *free.back();
                free.pop_back();
                unit.priority = static_cast<std::uint8_t>(random() % 3);
                if (random() % 8 == 0) {
                    pool.push_by_priority(unit);
                    const auto lower = [&](const numbered* each) {
                        return each->priority < unit.priority;
                    };
                    model.insert(std::find_if(model.begin(), model.end(), lower), &unit);
                } else {
                    pool.push(unit);
                    model.push_back(&unit);
                }
            } else {
                auto* const got = static_cast<numbered*>(pool.pop());
                ASSERT_EQ(got, model.empty() ? nullptr : model.front());
                if (got == nullptr) continue;
                model.pop_front();
                ++taken;
                free.push_back(got);
            }
        }
    };
    if (!on_stream) {
        play();
        while (pool.pop() != nullptr)
            continue;
        return;
    }
    post(stream, play);
    stream.run_ready();
}

TEST(fifo_pool, behaves_as_a_deque_on_its_stream_and_from_outside) {
    for (unsigned seed = 1; seed <= 4; ++seed)
        compare_with_deque(seed % 2 == 0, seed);
}

TEST(fifo_pool, of_a_stream_of_its_own_counts_each_turn_of_a_ult_once) {
    execution_stream stream(execution_stream_options{.driven = true});
    const pool& where = stream.main_pool();
    constexpr std::uint64_t ults = 100, yields = 3;
    for (std::uint64_t i = 0; i < ults; ++i) {
        post(stream, [] {
            for (std::uint64_t turn = 0; turn < yields; ++turn)
                this_task::yield();
        });
    }
    EXPECT_EQ(where.taken(), 0u);
    stream.run_ready();
    EXPECT_EQ(where.taken(), ults * (yields + 1));
    ult child;
    post(stream, [&] {
        child = spawn(stream, [] {});
        child.join();  // Which switches to it directly.
    });
    stream.run_ready();
    EXPECT_EQ(where.taken(), ults * (yields + 1) + 2);
}

TEST(fifo_pool, takes_in_what_others_push_while_its_own_work_goes_on) {
    execution_stream stream(execution_stream_options{.driven = true});
    bool stop = false;
    post(stream, [&] {
        while (!stop)
            this_task::yield();
    });
    post_tasklet(stream, [] {});
    std::thread([&] { post(stream, [&] { stop = true; }); }).join();
    stream.run_ready();
    EXPECT_TRUE(stop);
}

TEST(fifo_pool, what_its_stream_pushes_stays_behind_what_others_pushed_before) {
    execution_stream stream(execution_stream_options{.driven = true});
    pool& where = stream.main_pool();
    std::vector<numbered> own(4), others(4);
    post_tasklet(stream, [&] {
        for (std::size_t i = 0; i < own.size(); ++i) {
            std::thread([&] { where.push(others[i]); }).join();
            if (i % 2 == 0) {
                where.push(own[i]);
            } else {
                work_unit* const one = &own[i];
                where.push_many({&one, 1});
            }
        }
        for (std::size_t i = 0; i < own.size(); ++i) {
            EXPECT_EQ(where.pop(), &others[i]);
            EXPECT_EQ(where.pop(), &own[i]);
        }
    });
    stream.run_ready();
}

TEST(fifo_pool, gives_what_others_push_by_priority_at_once) {
    execution_stream stream(execution_stream_options{.driven = true});
    pool& where = stream.main_pool();
    numbered urgent(1);
    urgent.priority = 1;
    std::vector<numbered> others(20);
    for (std::size_t skipped = 0; skipped < 10; ++skipped) {
        post_tasklet(stream, [&] {
            for (numbered& each : others)
                where.push(each);
            for (std::size_t i = 0; i < skipped; ++i)
                EXPECT_EQ(where.pop(), &others[i]);
            std::thread([&] { where.push_by_priority(urgent); }).join();
            EXPECT_EQ(where.pop(), &urgent);
            EXPECT_EQ(where.pop(), &others[skipped]);
            while (where.pop() != nullptr)
                continue;
        });
        stream.run_ready();
    }
}

TEST(fifo_pool, keeps_each_pushers_order_and_loses_nothing) {
    constexpr int pushers = 4, each = 5000;
    fifo_pool pool;
    std::vector<std::deque<numbered>> units(pushers);
    std::vector<std::thread> threads;
    for (int p = 0; p < pushers; ++p) {
        threads.emplace_back([&, p] {
            for (int i = 0; i < each; ++i) {
                units[static_cast<std::size_t>(p)].emplace_back(i, p);
                pool.push(units[static_cast<std::size_t>(p)].back());
            }
        });
    }
    std::vector<int> next(pushers, 0);
    for (int got = 0; got < pushers * each;) {
        auto* const unit = static_cast<numbered*>(pool.pop());
        if (unit == nullptr) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(unit->number, next[static_cast<std::size_t>(unit->origin)]++);
        ++got;
    }
    for (auto& each_thread : threads)
        each_thread.join();
    EXPECT_TRUE(pool.empty());
}

TEST(fifo_pool, is_served_by_one_stream_at_a_time) {
    fifo_pool pool;
    const auto serve = [&] {
        return std::make_unique<execution_stream>(
            std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
            execution_stream_options{.driven = true});
    };
    auto first = serve();
    EXPECT_THROW(serve(), error);
    EXPECT_TRUE(pool.served());
    first.reset();
    EXPECT_FALSE(pool.served());
    EXPECT_NO_THROW(serve());
}

TEST(fifo_pool, counts_the_ults_that_live_in_it) {
    execution_stream stream(execution_stream_options{.driven = true});
    pool& where = stream.main_pool();
    event go;
    post(stream, [&] { go.wait(); });
    post(stream, [] {});
    post_tasklet(stream, [] {});
    std::thread([&] { post(stream, [&] { go.wait(); }); }).join();
    EXPECT_EQ(where.ults(), 3u);
    EXPECT_EQ(where.size(), 4u);
    stream.run_ready();
    EXPECT_EQ(where.ults(), 2u);
    EXPECT_EQ(where.size(), 0u);
    go.set();
    stream.run_ready();
    EXPECT_EQ(where.ults(), 0u);
}

#if defined(__x86_64__) && !defined(AMALGAM_ASAN) && !defined(AMALGAM_TSAN)
/// Single-steps a thread and holds it after some instructions until released.
struct stepper {
    static constexpr greg_t trap_flag = 0x100;
    static inline std::atomic<int> steps_left = 0;
    static inline std::atomic<bool> held = false, go_on = false;

    static void begin(int, siginfo_t*, void* context) {
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= trap_flag;
    }
    static void step(int, siginfo_t*, void* context) {
        if (--steps_left > 0) return;
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~trap_flag;
        if (steps_left < 0) return;
        held = true;
        while (!go_on)
            ::sched_yield();
    }
    static void handle(int signal, void (*by)(int, siginfo_t*, void*)) {
        struct sigaction how {};
        how.sa_sigaction = by;
        how.sa_flags = SA_SIGINFO;
        ::sigaction(signal, &how, nullptr);
    }
};

bool is_asleep(const execution_stream& which) {
    const auto all = detail::list_streams();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& each) { return each.name == which.name() && each.asleep; });
}

// For each n, the pusher is held after its nth instruction while the pool passes to another stream,
// which goes to sleep. A bell looked up before that and rung afterwards would wake nobody.
TEST(fifo_pool, wakes_the_stream_that_took_it_over_at_any_instruction_of_a_push) {
    stepper::handle(SIGUSR2, stepper::begin);
    stepper::handle(SIGTRAP, stepper::step);
    fifo_pool where, others[2];
    const auto serve = [](pool& one) {
        return std::make_unique<basic_scheduler>(std::vector<pool*>{&one});
    };
    execution_stream first(serve(where), {.name = "first", .spin = 0ns});
    execution_stream second(serve(others[1]), {.name = "second", .spin = 0ns});
    bool in_time = false;
    for (int n = 1; !in_time; ++n) {
        std::atomic<bool> pushed = false;
        event ran;
        stepper::held = stepper::go_on = false;
        stepper::steps_left = n;
        std::thread pusher([&] {
            struct told final : work_unit {
                explicit told(event& what) noexcept
                    : work_unit(
                          [](work_unit& self) noexcept { static_cast<told&>(self).ran.set(); }),
                      ran(what) {}
                event& ran;
            } unit(ran);
            std::raise(SIGUSR2);
            where.push(unit);
            stepper::steps_left = 0;  // the next step is the last
            pushed = true;
            ran.wait();
        });
        while (!stepper::held && !pushed)
            std::this_thread::yield();
        in_time = !stepper::held;
        // Once the unit is in the pool, the pusher may be between claiming a bell and striking it.
        if (!in_time && where.empty() && !ran.is_set()) {
            first.set_scheduler(serve(others[0]));
            second.set_scheduler(serve(where));
            while (!ran.is_set() && !is_asleep(second))
                std::this_thread::yield();
            stepper::go_on = true;
            ran.wait();
            second.set_scheduler(serve(others[1]));
            first.set_scheduler(serve(where));
        }
        stepper::go_on = true;
        pusher.join();
    }
    stepper::handle(SIGUSR2, nullptr);
    stepper::handle(SIGTRAP, nullptr);
}
#endif

}  // namespace
}  // namespace amalgam
