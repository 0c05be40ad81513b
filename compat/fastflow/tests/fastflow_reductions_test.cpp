// Reductions of FastFlow's interface, and loops that stand by themselves, each compared with a
// plain one.
#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include <ff/ff.hpp>
#include <ff/map.hpp>
#include <ff/parallel_for.hpp>
#include <gtest/gtest.h>

using namespace ff;

namespace {

/// Of i * i for 0, step, ... below `last`.
long plain_squares(long last, long step) {
    long sum = 0;
    for (long i = 0; i < last; i += step)
        sum += i * i;
    return sum;
}
const auto add_squares = [](long i, long& mine) { mine += i * i; };
const auto add_parts = [](long& all, long part) { all += part; };

}  // namespace

TEST(fastflow_reductions, in_all_their_forms_give_what_a_plain_loop_gives) {
    ParallelForReduce<long> loops(3);
    for (const long step : {1, 7}) {
        const long expected = plain_squares(1000, step);
        for (const long grain : {0, 1, 64, -5}) {
            long sum = 0;
            loops.parallel_reduce_static(sum, 0L, 0, 1000, step, grain, add_squares, add_parts);
            EXPECT_EQ(sum, expected) << step << " " << grain;
            long by_thread = 0;
            std::atomic<int> wrong{0};
            loops.parallel_reduce_thid(
                by_thread, 0L, 0, 1000, step, grain,
                [&](long i, long& mine, int thread) {
                    if (thread < 0 || thread > 1) ++wrong;
                    mine += i * i;
                },
                add_parts, 2);
            EXPECT_EQ(by_thread, expected) << step << " " << grain;
            EXPECT_EQ(wrong, 0);
        }
    }
}

TEST(fastflow_reductions, static_ones_reduce_in_the_order_of_threads) {
    ParallelForReduce<std::vector<long>> loops(3);
    std::vector<long> all;
    loops.parallel_reduce_static(
        all, {}, 0, 100, 1, 0, [](long i, std::vector<long>& mine) { mine.push_back(i); },
        [](std::vector<long>& whole, const std::vector<long>& part) {
            whole.insert(whole.end(), part.begin(), part.end());
        });
    std::vector<long> expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
}

TEST(fastflow_reductions, of_a_pipe_get_everything_that_the_loop_sends) {
    ParallelForPipeReduce<long*> loops(3);
    std::vector<long> squares(500);
    long sum = 0, calls = 0;
    loops.parallel_reduce_idx(
        0, 500, 1, 10,
        [&](long from, long to, int, ff_buffernode& node) {
            for (long i = from; i < to; ++i) {
                squares[static_cast<std::size_t>(i)] = i * i;
                node.put(&squares[static_cast<std::size_t>(i)]);
            }
        },
        [&](long* square) {
            sum += *square;
            ++calls;
        });
    EXPECT_EQ(calls, 500);
    EXPECT_EQ(sum, plain_squares(500, 1));

    std::atomic<long> alone{0};
    loops.parallel_for_idx(0, 500, 1, 10, [&](long from, long to, int, ff_buffernode&) {
        for (long i = from; i < to; ++i)
            alone += i * i;
    });
    EXPECT_EQ(alone, plain_squares(500, 1));
}

TEST(fastflow_reductions, free_loops_have_their_threads_for_themselves) {
    std::atomic<long> sum{0};
    const auto add = [&](long i) { sum += i * i; };
    parallel_for(0, 300, add, 2);
    parallel_for(0, 300, 3, add, 2);
    parallel_for(0, 300, 1, 16, add, 3);
    parallel_for_idx(
        0, 300, 3, 0,
        [&](long from, long to, int) {
            for (long i = from; i < to; i += 3)
                add(i);
        },
        2);
    EXPECT_EQ(sum, 2 * plain_squares(300, 1) + 2 * plain_squares(300, 3));

    long reduced = 0;
    parallel_reduce(reduced, 0L, 0, 300, 1, 7, add_squares, add_parts, 2);
    EXPECT_EQ(reduced, plain_squares(300, 1));
    parallel_reduce_idx(
        reduced, 0L, 0, 300, 3, 0,
        [&](long from, long to, long& mine, int) {
            for (long i = from; i < to; i += 3)
                mine += i * i;
        },
        add_parts, 2);
    EXPECT_EQ(reduced, plain_squares(300, 1) + plain_squares(300, 3));
}

TEST(fastflow_reductions, of_a_map_between_stages_give_each_item_its_sum) {
    using numbers = std::vector<long>;
    struct making : ff_node_t<numbers> {
        numbers* svc(numbers*) override {
            for (long size = 1; size <= 50; ++size)
                ff_send_out(new numbers(static_cast<std::size_t>(size * 10)));
            return EOS;
        }
    } first;
    struct summing : ff_Map<numbers, long, long> {
        summing() : ff_Map(2) {}
        long* svc(numbers* item) override {
            const auto size = static_cast<long>(item->size());
            parallel_for(0, size, [&](long i) { (*item)[static_cast<std::size_t>(i)] = i; });
            long sum = 0;
            parallel_reduce(
                sum, 0L, 0, size,
                [&](long i, long& mine) {
                    const long one = (*item)[static_cast<std::size_t>(i)];
                    mine += one * one;
                },
                add_parts);
            delete item;
            return new long(sum);
        }
    } middle;
    struct checking : ff_node_t<long> {
        long* svc(long* sum) override {
            got.push_back(*sum);
            delete sum;
            return GO_ON;
        }
        numbers got;
    } last;
    ff_Pipe<> pipe(first, middle, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    numbers expected;
    for (long size = 1; size <= 50; ++size)
        expected.push_back(plain_squares(size * 10, 1));
    EXPECT_EQ(last.got, expected);
}
