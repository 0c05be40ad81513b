// Loops where not all threads can be started: each iteration still runs once.
#include <atomic>
#include <functional>
#include <vector>

#include <ff/ff.hpp>
#include <ff/parallel_for.hpp>
#include <gtest/gtest.h>

#include "few_threads.hpp"

namespace ff::few_threads_tests {
namespace {

constexpr long threads = 4;
constexpr long count = 100;

class fastflow_few_threads : public testing::Test {
protected:
    void SetUp() override {
#if defined(AMALGAM_ASAN) || defined(AMALGAM_TSAN)
        GTEST_SKIP() << "pthread_create() is the sanitizer's";
#endif
    }
};

/// `loop` with no thread but the caller's, with one more, and so on until there are enough. It
/// calls what it is given for each number below `count`.
void expect_each_iteration_once(
    const std::function<void(const std::function<void(long)>& body)>& loop) {
    for (int spare = 0; spare < threads; ++spare) {
        std::vector<std::atomic<int>> seen(count);
        {
            const amalgam::few_threads few(spare);
            loop([&seen](long i) { ++seen[static_cast<std::size_t>(i)]; });
        }
        for (std::size_t i = 0; i != seen.size(); ++i)
            EXPECT_EQ(seen[i], 1) << i << " with " << spare << " threads more";
    }
}

/// The same for a reduction, which counts the numbers below `count` into what it is given.
void expect_all_to_be_counted(const std::function<void(long& sum)>& reduction) {
    for (int spare = 0; spare < threads; ++spare) {
        const amalgam::few_threads few(spare);
        long sum = 0;
        reduction(sum);
        EXPECT_EQ(sum, count) << "with " << spare << " threads more";
    }
}

const auto add_one = [](long, long& mine) { ++mine; };
const auto add_range = [](long from, long to, long& mine, int) { mine += to - from; };
const auto add_parts = [](long& all, long part) { all += part; };

TEST_F(fastflow_few_threads, loops_leave_out_no_iteration) {
    for (const long grain : {0, 1, 5, -5}) {
        expect_each_iteration_once([grain](const auto& body) {
            ParallelFor(threads).parallel_for(0, count, 1, grain, body);
        });
        expect_each_iteration_once([grain](const auto& body) {
            ParallelFor(threads).parallel_for_static(0, count, 1, grain, body);
        });
        expect_each_iteration_once([grain](const auto& body) {
            ParallelFor(threads).parallel_for_thid(0, count, 1, grain,
                                                   [&body](long i, int) { body(i); });
        });
        expect_each_iteration_once([grain](const auto& body) {
            parallel_for_idx(
                0, count, 1, grain,
                [&body](long from, long to, int) {
                    for (; from < to; ++from)
                        body(from);
                },
                threads);
        });
    }
    expect_each_iteration_once(
        [](const auto& body) { ParallelFor(threads).parallel_for(0, count, body); });
}

TEST_F(fastflow_few_threads, reductions_leave_out_no_iteration) {
    using loops = ParallelForReduce<long>;
    for (const long grain : {0, 1, 5, -5}) {
        expect_all_to_be_counted([grain](long& sum) {
            loops(threads).parallel_reduce(sum, 0L, 0, count, 1, grain, add_one, add_parts);
        });
        expect_all_to_be_counted([grain](long& sum) {
            loops(threads).parallel_reduce_static(sum, 0L, 0, count, 1, grain, add_one, add_parts);
        });
        expect_all_to_be_counted([grain](long& sum) {
            loops(threads).parallel_reduce_idx(sum, 0L, 0, count, 1, grain, add_range, add_parts);
        });
        expect_all_to_be_counted([grain](long& sum) {
            loops(threads).parallel_reduce_thid(
                sum, 0L, 0, count, 1, grain, [](long, long& mine, int) { ++mine; }, add_parts);
        });
    }
    expect_all_to_be_counted(
        [](long& sum) { loops(threads).parallel_reduce(sum, 0L, 0, count, add_one, add_parts); });
}

TEST_F(fastflow_few_threads, of_a_pipe_get_everything_that_the_loop_sends) {
    std::vector<long> items(count);
    expect_all_to_be_counted([&items](long& sum) {
        ParallelForPipeReduce<long*>(threads).parallel_reduce_idx(
            0, count, 1, 0,
            [&items](long from, long to, int, ff_buffernode& node) {
                for (; from < to; ++from)
                    node.put(&items[static_cast<std::size_t>(from)]);
            },
            [&sum](long*) { ++sum; });
    });
}

TEST_F(fastflow_few_threads, a_team_goes_on_with_the_threads_that_it_has) {
    ParallelFor loops(threads);
    loops.parallel_for(
        0, count, 1, 0, [](long) {}, 2);
    expect_each_iteration_once([&loops](const auto& body) {
        loops.parallel_for(0, count, body);
        EXPECT_EQ(loops.getnw(), 2u);
        EXPECT_EQ(loops.getNWorkers(), 2u);
    });
}

}  // namespace
}  // namespace ff::few_threads_tests
