#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

struct simple_unit final : work_unit {
    simple_unit() noexcept : work_unit([](work_unit&) noexcept {}) {}
    std::atomic<int> taken{0};
};

/// Model of a pool on a plain deque: the next unit out is in front.
struct model {
    std::function<void(std::deque<simple_unit*>&, simple_unit&, bool yielded)> put;
    std::function<simple_unit*(std::deque<simple_unit*>&)> take;
    bool has_first = true;  ///< Units pushed by priority precede lower ones.
};

simple_unit* take_front(std::deque<simple_unit*>& units) {
    if (units.empty()) return nullptr;
    simple_unit* const first = units.front();
    units.pop_front();
    return first;
}

const model fifo{[](auto& units, simple_unit& unit, bool) { units.push_back(&unit); }, take_front};
const model lifo{[](auto& units, simple_unit& unit, bool yielded) {
                     yielded ? units.push_back(&unit) : units.push_front(&unit);
                 },
                 take_front};
const model by_priority{
    [](auto& units, simple_unit& unit, bool) {
        const auto level = [](const simple_unit* each) { return std::min<int>(each->priority, 3); };
        const auto at = std::find_if(units.begin(), units.end(), [&](const simple_unit* each) {
            return level(each) < level(&unit);
        });
        units.insert(at, &unit);
    },
    take_front};
void compare(pool& tested, const model& should) {
    std::mt19937 random(7);
    std::vector<simple_unit> units(64);
    std::vector<simple_unit*> free;
    for (auto& each : units)
        free.push_back(&each);
    std::deque<simple_unit*> inside;
    std::uint64_t taken = 0;
    for (int i = 0; i < 30000; ++i) {
        ASSERT_EQ(tested.size(), inside.size());
        ASSERT_EQ(tested.taken(), taken);
        ASSERT_EQ(tested.empty(), inside.empty());
        const auto what = random() % 16;
        if (what < 8 && !free.empty()) {
            simple_unit& unit = *free.back();
            free.pop_back();
            unit.priority = static_cast<std::uint8_t>(random() % 6);
            what < 6 ? tested.push(unit) : tested.requeue(unit);
            should.put(inside, unit, what >= 6);
        } else if (what == 14 && should.has_first && !free.empty()) {
            simple_unit& unit = *free.back();
            free.pop_back();
            unit.priority = static_cast<std::uint8_t>(random() % 4);
            tested.push_by_priority(unit);
            inside.insert(std::find_if(inside.begin(), inside.end(),
                                       [&](const simple_unit* each) {
                                           return std::min<int>(each->priority, 3) < unit.priority;
                                       }),
                          &unit);
        } else if (what == 15 && !inside.empty()) {
            simple_unit* const any = inside[random() % inside.size()];
            ASSERT_TRUE(tested.remove(*any));
            ASSERT_FALSE(tested.remove(*any));
            ++taken;
            inside.erase(std::find(inside.begin(), inside.end(), any));
            free.push_back(any);
        } else {
            auto* const got = static_cast<simple_unit*>(tested.pop());
            ASSERT_EQ(got, should.take(inside));
            if (got != nullptr) free.push_back(got);
            if (got != nullptr) ++taken;
        }
    }
    while (tested.pop() != nullptr)
        continue;
}

TEST(shared_pools, behave_as_their_models) {
    shared_fifo_pool first;
    compare(first, fifo);
    lifo_pool last;
    compare(last, lifo);
    priority_pool urgent(4);
    compare(urgent, by_priority);
    work_stealing_pool deque;
    compare(deque, {fifo.put, fifo.take, false});  // as seen from outside its own stream
}

TEST(work_stealing_pool, gives_anybody_what_came_by_priority_first) {
    work_stealing_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            execution_stream_options{.driven = true});
    std::vector<simple_unit> units(6);
    units[2].priority = units[5].priority = 9;
    units[3].priority = 1;
    post_tasklet(pool, [&] {
        pool.push(units[0]);
        for (const std::size_t each : {3u, 2u, 5u})
            pool.push_by_priority(units[each]);
        pool.push(units[1]);
        EXPECT_EQ(pool.pop(), &units[2]);
        std::thread([&] { EXPECT_EQ(pool.pop(), &units[5]); }).join();
        EXPECT_TRUE(pool.remove(units[3]));
        EXPECT_EQ(pool.pop(), &units[1]);
        EXPECT_EQ(pool.pop(), &units[0]);
    });
    stream.run_ready();
}

TEST(work_stealing_pool, gives_its_own_stream_the_newest_and_others_the_oldest) {
    work_stealing_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            execution_stream_options{.driven = true});
    std::vector<simple_unit> units(3);
    post_tasklet(pool, [&] {
        for (auto& each : units)
            pool.push(each);
        EXPECT_EQ(pool.pop(), &units[2]);
        pool.push(units[2]);
        std::thread([&] { EXPECT_EQ(pool.pop(), &units[0]); }).join();
        EXPECT_EQ(pool.pop(), &units[2]);
        EXPECT_EQ(pool.pop(), &units[1]);
    });
    stream.run_ready();
}

TEST(work_stealing_pool, does_not_forget_what_came_from_outside) {
    work_stealing_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            execution_stream_options{.driven = true});
    bool stop = false;
    struct chain {
        static void go_on(const bool& until) {
            if (!until) post([&until] { go_on(until); });
        }
    };
    post(pool, [&] { chain::go_on(stop); });
    post(pool, [&] { stop = true; });
    stream.run_ready();
    EXPECT_TRUE(stop);
}

TEST(work_stealing_pool, lets_others_go_first_when_a_ult_yields) {
    work_stealing_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            execution_stream_options{.driven = true});
    std::string order;
    post(pool, [&] {
        for (char c : {'a', 'b', 'c'}) {
            post([&order, c] {
                order += c;
                this_task::yield();
                order += c;
            });
        }
    });
    stream.run_ready();
    EXPECT_EQ(order, "cbacba");
}

TEST(priority_pool, without_a_level_is_refused) {
    EXPECT_THROW(priority_pool(0), error);
    EXPECT_THROW(priority_pool(257), error);
}

template <typename Pool>
struct any_shared_pool : testing::Test {};
using kinds = testing::Types<shared_fifo_pool, lifo_pool, priority_pool, work_stealing_pool>;
TYPED_TEST_SUITE(any_shared_pool, kinds);

TYPED_TEST(any_shared_pool, gives_each_unit_to_one_of_many_threads) {
    constexpr int pushers = 2, poppers = 2, each = 4000;
    TypeParam pool;
    std::vector<simple_unit> units(pushers * each);
    std::atomic<int> left = pushers * each;
    std::vector<std::thread> threads;
    for (int p = 0; p < pushers; ++p) {
        threads.emplace_back([&, p] {
            for (int i = 0; i < each; ++i)
                pool.push(units[static_cast<std::size_t>(p * each + i)]);
        });
    }
    for (int p = 0; p < poppers; ++p) {
        threads.emplace_back([&] {
            while (left > 0) {
                auto* const got = static_cast<simple_unit*>(pool.pop());
                if (got == nullptr) {
                    std::this_thread::yield();
                    continue;
                }
                ++got->taken;
                --left;
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    for (const auto& unit : units)
        ASSERT_EQ(unit.taken, 1);
    EXPECT_TRUE(pool.empty());
}

TYPED_TEST(any_shared_pool, wakes_whichever_of_its_streams_sleeps) {
    TypeParam pool;
    const auto serve = [&] {
        return std::make_unique<execution_stream>(
            std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
            execution_stream_options{.spin = std::chrono::nanoseconds(0)});
    };
    auto first = serve(), second = serve();
    for (int i = 0; i < 500; ++i) {
        // Each waits for the other, so both streams must take part.
        std::atomic<int> here = 0;
        const auto meet = [&] {
            ++here;
            while (here < 2)
                std::this_thread::yield();
        };
        ult a = spawn(pool, meet), b = spawn(pool, meet);
    }
    EXPECT_EQ(pool.ults(), 0u);
    first.reset();
    spawn(pool, [] {}).join();  // one stream is enough
    second.reset();
    EXPECT_FALSE(pool.served());
    EXPECT_THROW(spawn(pool, [] {}), error);
    auto third = serve();  // and one may come later
    spawn(pool, [] {}).join();
}

TYPED_TEST(any_shared_pool, lets_ults_go_on_on_another_stream) {
    TypeParam pool;
    std::vector<std::unique_ptr<execution_stream>> streams;
    for (int i = 0; i < 2; ++i) {
        streams.push_back(std::make_unique<execution_stream>(
            std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool})));
    }
    std::vector<ult> ults;
    std::atomic<int> sum = 0;
    for (int i = 0; i < 50; ++i) {
        ults.push_back(spawn(pool, [&] {
            for (int turn = 0; turn < 100; ++turn) {
                ++sum;
                this_task::yield();
            }
        }));
    }
    ults.clear();
    EXPECT_EQ(sum, 5000);
}

}  // namespace
}  // namespace amalgam
