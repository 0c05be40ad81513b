#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

struct numbered final : work_unit {
    explicit numbered(int n = 0, int from = 0) noexcept
        : work_unit([](work_unit&) noexcept {}), number(n), origin(from) {}
    int number;
    int origin;
};

/// Pushes and pops at random, as the serving stream or from outside, against a deque.
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
    std::mt19937 random(seed);

    const auto play = [&] {
        for (int i = 0; i < 20000; ++i) {
            ASSERT_EQ(pool.size(), model.size());
            ASSERT_EQ(pool.empty(), model.empty());
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

}  // namespace
}  // namespace amalgam
