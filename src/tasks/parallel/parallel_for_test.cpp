#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/parallel_for.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

constexpr partition partitions[] = {partition::automatic, partition::dynamic, partition::fixed};

/// A loop over a team, by the number of streams and how it is cut.
struct parallel_for_of : testing::TestWithParam<std::tuple<std::size_t, partition>> {
    work_stealing_team team{std::get<0>(GetParam())};
    partition how = std::get<1>(GetParam());

    /// Runs the loop and checks that each iteration runs once.
    void expect_each_once(std::size_t count, std::size_t grain, std::size_t tasks) {
        std::vector<std::atomic<int>> runs(count);
        parallel_for(team, 0, count, [&](std::size_t i) { ++runs[i]; },
                     {.how = how, .grain = grain, .tasks = tasks});
        for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(runs[i], 1) << i << " of " << count << ", grain " << grain;
    }
};

TEST_P(parallel_for_of, runs_each_iteration_once) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 64, 1000, 12345}) {
        for (const std::size_t grain : {0, 1, 5, 100000}) {
            for (const std::size_t tasks : {0, 1, 3})
                expect_each_once(count, grain, tasks);
        }
    }
}

TEST_P(parallel_for_of, runs_from_a_ult_of_the_team_from_another_and_from_a_thread) {
    execution_stream elsewhere;
    spawn(team.main_pool(), [&] { expect_each_once(1000, 1, 0); }).join();
    spawn(elsewhere, [&] { expect_each_once(1000, 1, 0); }).join();
    std::thread([&] { expect_each_once(1000, 1, 0); }).join();
}

TEST_P(parallel_for_of, nests) {
    constexpr int side = 20;
    std::atomic<int> sum = 0;
    parallel_for(team, 0, side,
                 [&](int row) {
                     parallel_for(team, 0, side, [&](int column) { sum += row * column; },
                                  {.how = how, .grain = 2});
                 },
                 {.how = how});
    EXPECT_EQ(sum, 190 * 190);
}

TEST_P(parallel_for_of, throws_the_first_exception_and_begins_no_further_chunk) {
    std::atomic<int> runs = 0;
    try {
        parallel_for(team, 0, 100000,
                     [&](int) {
                         ++runs;
                         throw std::runtime_error("iteration");
                     },
                     {.how = how, .grain = 1});
        FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& thrown) {
        EXPECT_STREQ(thrown.what(), "iteration");
    }
    EXPECT_LE(runs, static_cast<int>(team.size()) + 1);  // each that takes part begins one at most
    expect_each_once(100, 1, 0);
}

TEST_P(parallel_for_of, ends_when_it_is_asked_to_stop) {
    std::stop_source source;
    std::atomic<int> runs = 0;
    try {
        parallel_for(team, 0, 100000,
                     [&](int) {
                         ++runs;
                         source.request_stop();
                     },
                     {.how = how, .grain = 1, .stop = source.get_token()});
        FAIL() << "nothing was thrown";
    } catch (const error& thrown) {
        EXPECT_EQ(thrown.code(), errc::canceled);
    }
    EXPECT_LE(runs, how == partition::automatic ? 50000 : static_cast<int>(team.size()) + 1);
}

TEST_P(parallel_for_of, body_that_waits_does_not_stop_the_others) {
    constexpr int count = 10;
    const auto loop = [&] {
        event last_one_ran;
        parallel_for(team, 0, count,
                     [&](int i) {
                         if (i == count - 1) {
                             last_one_ran.set();
                         } else {
                             last_one_ran.wait();
                         }
                     },
                     {.how = how, .grain = 1, .tasks = count});
    };
    spawn(team.main_pool(), loop).join();
    loop();
}

INSTANTIATE_TEST_SUITE_P(teams, parallel_for_of,
                         testing::Combine(testing::Values(1, 2, 5), testing::ValuesIn(partitions)));

TEST(parallel_for, takes_steps_and_any_integer) {
    work_stealing_team team(2);
    std::atomic<std::int64_t> sum = 0;
    const auto sum_of = [&](auto first, auto last, auto step) {
        sum = 0;
        parallel_for(team, first, last, step, [&](auto i) { sum += static_cast<std::int64_t>(i); });
        return sum.load();
    };
    EXPECT_EQ(sum_of(-10, 11, 5), 0);
    EXPECT_EQ(sum_of(-10, 10, 3), -10 - 7 - 4 - 1 + 2 + 5 + 8);
    EXPECT_EQ(sum_of(std::uint8_t{0}, std::uint8_t{255}, std::uint8_t{50}), 750);
    EXPECT_EQ(sum_of(std::int8_t{-128}, std::int8_t{127}, std::int8_t{127}), -128 - 1 + 126);
    EXPECT_EQ(sum_of(std::uint16_t{65000}, std::uint16_t{65535}, std::uint16_t{500}),
              65000 + 65500);
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    constexpr auto least = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(sum_of(least, most, most), -3);  // least, -1, most - 1
    EXPECT_EQ(sum_of(5, 5, 1), 0);
    EXPECT_EQ(sum_of(6, 5, 1), 0);
    // A step that does not fit what is counted.
    EXPECT_EQ(sum_of(std::uint8_t{5}, std::uint8_t{200}, 256), 5);
    EXPECT_EQ(sum_of(std::uint8_t{5}, std::uint8_t{200}, 300), 5);
    EXPECT_EQ(sum_of(5, 10, (std::int64_t{1} << 32) + 1), 5);
    EXPECT_EQ(sum_of(5, 10, std::uint32_t{1} << 31), 5);
    EXPECT_EQ(code_of([&] { sum_of(0u, 10u, -1); }), errc::invalid);
    EXPECT_EQ(code_of([&] { sum_of(std::size_t{0}, std::size_t{10}, -1); }), errc::invalid);
    for (const int step : {0, -1}) {
        try {
            sum_of(0, 5, step);
            FAIL() << "step " << step;
        } catch (const error& thrown) {
            EXPECT_EQ(thrown.code(), errc::invalid);
            EXPECT_NE(std::string(thrown.what()).find("step"), std::string::npos);
        }
    }
}

TEST(parallel_for, takes_ranges_and_chunks) {
    work_stealing_team team(2);
    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    parallel_for(team, numbers, [](int& each) { each *= 2; });
    for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(numbers[static_cast<std::size_t>(i)], 2 * i);

    std::atomic<int> seen = 0;
    parallel_for_chunks(team, 10, 110,
                        [&](int from, int to) {
                            EXPECT_LE(to - from, 7);
                            seen += to - from;
                        },
                        {.how = partition::dynamic, .grain = 7});
    EXPECT_EQ(seen, 100);
}

TEST(parallel_for, calls_a_member_function_of_each_element) {
    struct number {
        int value = 1;
        void grow() { ++value; }
    };
    work_stealing_team team(2);
    std::vector<number> numbers(100);
    parallel_for(team, numbers, &number::grow);
    for (const number& each : numbers)
        ASSERT_EQ(each.value, 2);
}

TEST(parallel_for, ends_at_once_also_with_more_tasks_than_could_be_counted) {
    work_stealing_team team(1);
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    EXPECT_EQ(code_of([&] {
                  parallel_for(team, std::size_t{0}, most,
                               [](std::size_t) { throw error(errc::denied, "a failure"); },
                               {.how = partition::fixed, .tasks = most});
              }),
              errc::denied);
    std::atomic<int> runs = 0;
    for (const partition how : partitions) {
        parallel_for(parallel_streams(team.main_pool(), most), 0, 100, [&](int) { ++runs; },
                     {.how = how});
    }
    EXPECT_EQ(runs, 300);
}

TEST(parallel_for, runs_on_a_shared_pool) {
    shared_fifo_pool pool;
    const auto serve = [&] {
        return std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool});
    };
    execution_stream one(serve()), other(serve());
    std::atomic<int> sum = 0;
    const parallel_streams both(pool, 2);
    parallel_for(both, 0, 100, [&](int i) { sum += i; });
    spawn(pool, [&] { parallel_for(both, 0, 100, [&](int i) { sum += i; }); }).join();
    EXPECT_EQ(sum, 2 * 4950);
    EXPECT_THROW(parallel_streams(pool, 0), error);
}

TEST(parallel_for, is_not_held_up_by_busy_streams_once_nothing_is_left) {
    work_stealing_team team(2);
    std::atomic<int> busy = 0;
    std::atomic<bool> may_end = false;
    std::vector<ult> occupants;
    for (int i = 0; i < 2; ++i) {
        occupants.push_back(spawn(team.main_pool(), [&] {
            ++busy;
            while (!may_end)
                std::this_thread::yield();
        }));
    }
    while (busy < 2)
        std::this_thread::yield();
    int runs = 0;
    for (const partition how : partitions)
        parallel_for(team, 0, 100, [&](int) { ++runs; }, {.how = how});
    EXPECT_EQ(runs, 300);
    EXPECT_THROW(parallel_for(team, 0, 100, [](int) { throw std::runtime_error("on purpose"); }),
                 std::runtime_error);
    may_end = true;
    for (ult& each : occupants)
        each.join();
}

TEST(parallel_for, leaves_behind_no_more_than_some_ults_that_came_too_late) {
    work_stealing_team team(1);
    std::size_t most = 0;
    std::size_t runs = 0;
    spawn(team.main_pool(), [&] {
        for (int i = 0; i < 10000; ++i) {
            parallel_for(team, 0, 2, [&](int) { ++runs; }, {.how = partition::dynamic});
            most = std::max(most, team.main_pool().ults());
        }
    }).join();
    EXPECT_EQ(runs, 20000u);
    EXPECT_LE(most, 66u);  // and the caller, and one that is not turned away
}

TEST(parallel_for, ends_while_others_begin_too_late) {
    work_stealing_team team(3);
    std::atomic<int> runs = 0;
    const auto run_many = [&] {
        for (int i = 0; i < 3000; ++i)
            parallel_for(team, 0, 4, [&](int) { ++runs; }, {.how = partition::dynamic});
    };
    std::thread thread(run_many);
    ult caller = spawn(team.main_pool(), run_many);
    run_many();
    caller.join();
    thread.join();
    EXPECT_EQ(runs, 3 * 3000 * 4);
}

TEST(parallel_for, lets_no_more_take_part_than_it_was_told) {
    work_stealing_team team(4);
    std::atomic<int> inside = 0;
    std::atomic<bool> too_many = false;
    for (const partition how : partitions) {
        parallel_for(team, 0, 300,
                     [&](int) {
                         if (++inside > 2) too_many = true;
                         this_task::yield();
                         --inside;
                     },
                     {.how = how, .tasks = 2});
    }
    EXPECT_FALSE(too_many);
}

TEST(parallel_for, a_ult_of_another_stream_parks_and_is_canceled) {
    work_stealing_team team(2);
    execution_stream elsewhere;
    event begun, may_end;
    std::atomic<int> runs = 0;
    std::atomic<bool> on_own_stream = false;
    ult caller = spawn(elsewhere, [&] {
        parallel_for(team, 0, 1000,
                     [&](int) {
                         ++runs;
                         if (execution_stream::current() == &elsewhere) on_own_stream = true;
                         begun.set();
                         may_end.wait();
                     },
                     {.how = partition::dynamic, .tasks = 2});
    });
    begun.wait();
    spawn(elsewhere, [] {}).join();  // the caller has parked, and holds up nothing
    caller.cancel();
    spawn(elsewhere, [] {}).join();
    may_end.set();
    EXPECT_EQ(code_of([&] { caller.join(); }), errc::canceled);
    EXPECT_LE(runs, 2);
    EXPECT_FALSE(on_own_stream);
}

TEST(parallel_for, refuses_where_nobody_can_wait_or_run_it) {
    work_stealing_team team(1);
    std::string refused;
    spawn_tasklet(team.main_pool(), [&] {
        try {
            parallel_for(team, 0, 10, [](int) {});
        } catch (const error& thrown) {
            refused = thrown.what();
        }
    }).join();
    EXPECT_NE(refused.find("cannot wait"), std::string::npos) << refused;

    team.stop();
    int runs = 0;
    EXPECT_THROW(parallel_for(team, 0, 10, [&](int) { ++runs; }), error);
    EXPECT_EQ(runs, 0);
}

TEST(parallel_for, body_that_exits_its_ult_ends_the_loop_with_a_sentence) {
    work_stealing_team team(2);
    spawn(team.main_pool(), [&] {
        try {
            parallel_for(team, 0, 100, [](int) { this_task::exit(); });
            FAIL() << "nothing was thrown";
        } catch (const error& thrown) {
            EXPECT_NE(std::string(thrown.what()).find("this_task::exit()"), std::string::npos);
        }
    }).join();
}

TEST(parallel_for, allocates_nothing_once_its_pools_are_warm) {
    if (detail::sanitized) GTEST_SKIP() << "allocations are counted in plain builds";
    work_stealing_team team(1);
    std::uint64_t counted = 1;
    spawn(team.main_pool(), [&] {
        for (int rounds = 0; rounds < 300 && counted != 0; ++rounds) {
            const std::uint64_t before = memory::allocations();
            parallel_for(team, 0, 1000, [](int) {}, {.how = partition::dynamic});
            counted = memory::allocations() - before;
        }
    }).join();
    EXPECT_EQ(counted, 0u);
}

}  // namespace
}  // namespace amalgam
