// Loops of FastFlow's interface, each compared with a plain one.
#include <algorithm>
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

namespace {
struct sums {
    explicit sums(std::size_t size) : times(size) {}
    void add(long i) { ++times[static_cast<std::size_t>(i)]; }
    void add(long from, long to, long step = 1) {
        for (; from < to; from += step)
            add(from);
    }
    /// How often each was added.
    std::vector<std::atomic<int>> times;
    bool all(int often) const {
        return std::all_of(times.begin(), times.end(),
                           [often](const std::atomic<int>& each) { return each == often; });
    }
};
}  // namespace

TEST(fastflow_parallel_for, macros_of_ranges_and_steps_are_loops) {
    sums seen(100);
    const std::size_t last = 100;
    FF_PARFOR_BEGIN_IDX(alone, i, 0, last, 1, 4, 2, true) {
        seen.add(ff_start_idx, ff_stop_idx);
    }
    FF_PARFOR_END(alone);
    FF_PARFOR_DECL(loops);
    FF_PARFOR_ASSIGN(loops, 2);
    FF_PARFOR_START_IDX(loops, i, 0, 100, 1, 0, 2)
    seen.add(ff_start_idx, ff_stop_idx);
    FF_PARFOR_STOP(loops)
    FF_PARFOR2_START(loops, k, 0, 100, 1, PARFOR_STATIC(7), 2) {
        seen.add(ff_start_k, ff_stop_k);
    }
    FF_PARFOR_STOP(loops);
    FF_PARFOR_START(loops, i, 0, 100, 2, PARFOR_DYNAMIC(3), 2) {
        seen.add(i);
        if (i % 4 == 0) continue;
        EXPECT_LT(_ff_thread_id, 2);
    }
    FF_PARFOR_STOP(loops);
    FF_PARFOR_START(loops, i, 1, 100, 2, 3, 2) {
        seen.add(i);
    }
    FF_PARFOR_STOP(loops);
    FF_PARFOR_DONE(loops);
    EXPECT_TRUE(seen.all(4));
}

TEST(fastflow_parallel_reduce, macros_of_ranges_and_steps_are_loops) {
    sums seen(100);
    long sum = 1;
    FF_PARFORREDUCE_BEGIN_IDX(alone, sum, 0, i, 0, 100, 1, 4, 2, true) {
        for (long i = ff_start_idx; i < ff_stop_idx; ++i)
            sum += i;
    }
    FF_PARFORREDUCE_END(alone, sum, +);
    FF_PARFORREDUCE_BEGIN(other, sum, 0, i, 0, 100, 2, 4, 2) {
        sum += i;
    }
    FF_PARFORREDUCE_F_END(other, sum, [](long& all, long part) { all += part; });
    EXPECT_EQ(sum, 1 + 4950 + 2450);

    FF_PARFORREDUCE_DECL(loops, long);
    FF_PARFORREDUCE_ASSIGN(loops, long, 2);
    FF_PARFORREDUCE_START_IDX(loops, sum, 0, i, 0, 100, 1, 9, 2) {
        for (long i = ff_start_idx; i < ff_stop_idx; ++i)
            sum += i;
    }
    FF_PARFORREDUCE_STOP(loops, sum, +);
    FF_PARFORREDUCE_START_STATIC(loops, sum, 0, i, 0, 100, 1, -9, 2) {
        sum += _ff_thread_id == (i / 9) % 2 ? i : 1000000;
    }
    FF_PARFORREDUCE_F_STOP(loops, sum, [](long& all, long part) { all += part; });
    EXPECT_EQ(sum, 1 + 3 * 4950 + 2450);

    FF_PARFOR_T_START(loops, long, i, 0, 100, 1, 4, 2) {
        seen.add(i);
    }
    FF_PARFOR_T_STOP(loops, long);
    FF_PARFOR_T_START_STATIC(loops, long, i, 0, 100, 1, -4, 2) {
        seen.add(i);
    }
    FF_PARFOR_T_STOP(loops, long);
    FF_PARFOR_T_START_IDX(loops, long, i, 0, 100, 1, 4, 2) {
        seen.add(ff_start_idx, ff_stop_idx);
    }
    FF_PARFOR_T_STOP(loops, long);
    FF_PARFORREDUCE_DONE(loops);
    EXPECT_TRUE(seen.all(3));
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
