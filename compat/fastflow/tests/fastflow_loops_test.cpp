// Loops of FastFlow's interface, each compared with a plain one.
#include <atomic>
#include <stdexcept>
#include <vector>

#include <ff/ff.hpp>
#include <ff/map.hpp>
#include <ff/parallel_for.hpp>
#include <gtest/gtest.h>

using namespace ff;

namespace {

/// How often each iteration ran.
std::vector<std::atomic<int>> counters(std::size_t how_many) {
    return std::vector<std::atomic<int>>(how_many);
}
void expect_every(const std::vector<std::atomic<int>>& seen, long step) {
    for (std::size_t i = 0; i != seen.size(); ++i)
        EXPECT_EQ(seen[i], static_cast<long>(i) % step == 0 ? 1 : 0) << i;
}

}  // namespace

TEST(fastflow_parallel_for, runs_each_iteration_once) {
    ParallelFor loops(3);
    for (const long step : {1, 3}) {
        for (const long grain : {0, 1, 7, -7}) {
            auto seen = counters(100);
            const auto count = [&](long i) { ++seen[static_cast<std::size_t>(i)]; };
            loops.parallel_for(0, 100, step, grain, count);
            expect_every(seen, step);
            auto again = counters(100);
            loops.parallel_for_static(
                0, 100, step, grain, [&](long i) { ++again[static_cast<std::size_t>(i)]; }, 2);
            expect_every(again, step);
            auto ranges = counters(100);
            loops.parallel_for_idx(0, 100, step, grain, [&](long from, long to, int thread) {
                EXPECT_TRUE(thread >= 0 && thread < 3);
                for (long i = from; i < to; i += step)
                    ++ranges[static_cast<std::size_t>(i)];
            });
            expect_every(ranges, step);
        }
    }
    loops.parallel_for(5, 5, [](long) { FAIL(); });
}

TEST(fastflow_parallel_for, static_gives_thread_t_every_nth_grain) {
    ParallelFor loops(2);
    std::vector<int> by(12, -1);
    loops.parallel_for_thid(0, 12, 1, -2,
                            [&](long i, int thread) { by[static_cast<std::size_t>(i)] = thread; });
    EXPECT_EQ(by, (std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
}

TEST(fastflow_parallel_for, throws_what_its_body_throws) {
    ParallelFor loops(3);
    EXPECT_THROW(loops.parallel_for(0, 100,
                                    [](long i) {
                                        if (i == 50) throw std::runtime_error("no");
                                    }),
                 std::runtime_error);
    std::atomic<int> ran = 0;
    loops.parallel_for(0, 10, [&](long) { ++ran; });
    EXPECT_EQ(ran, 10);
}

TEST(fastflow_parallel_reduce, sums_as_a_plain_loop_does) {
    ParallelForReduce<long> loops(3);
    const auto add = [](long& sum, long part) { sum += part; };
    for (const long grain : {0, 1, 10}) {
        long sum = 5;
        loops.parallel_reduce(
            sum, 0L, 0, 1000, 1, grain, [](long i, long& mine) { mine += i; }, add);
        EXPECT_EQ(sum, 5 + 999 * 500);
        long ranges = 0;
        loops.parallel_reduce_idx(
            ranges, 0L, 0, 1000, 1, grain,
            [](long from, long to, long& mine, int) {
                for (long i = from; i < to; ++i)
                    mine += i;
            },
            add);
        EXPECT_EQ(ranges, 999 * 500);
    }
}

// FastFlow's macros name each thread's own value as the result.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
TEST(fastflow_parallel_reduce, macros_are_loops) {
    std::vector<long> values(100, 0);
    FF_PARFOR_BEGIN(fill, i, 0, 100, 1, 4, 2) {
        values[static_cast<std::size_t>(i)] = i;
    }
    FF_PARFOR_END(fill);
    long sum = 0;
    FF_PARFORREDUCE_INIT(loops, long, 2);
    FF_PARFORREDUCE_START(loops, sum, 0, i, 0, 100, 1, 4, 2) {
        sum += values[static_cast<std::size_t>(i)];
    }
    FF_PARFORREDUCE_STOP(loops, sum, +);
    FF_PARFORREDUCE_DONE(loops);
    EXPECT_EQ(sum, 4950);
}
#pragma GCC diagnostic pop

TEST(fastflow_map, is_a_node_that_runs_loops) {
    struct square : ff_Map<std::vector<long>> {
        using map = ff_Map<std::vector<long>>;
        std::vector<long>* svc(std::vector<long>* item) override {
            ParallelFor::parallel_for(0, static_cast<long>(item->size()), [&](long i) {
                (*item)[static_cast<std::size_t>(i)] = i * i;
            });
            return item;
        }
        square() : map(2) {}
    } middle;
    struct source : ff_node_t<std::vector<long>> {
        std::vector<long>* svc(std::vector<long>*) override {
            ff_send_out(&values);
            return EOS;
        }
        std::vector<long> values = std::vector<long>(100);
    } first;
    ff_Pipe<> pipe(first, middle);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    for (long i = 0; i < 100; ++i)
        EXPECT_EQ(first.values[static_cast<std::size_t>(i)], i * i);
}
