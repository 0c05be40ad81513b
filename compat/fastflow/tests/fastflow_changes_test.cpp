// Graphs that are changed before they run of FastFlow's interface, each compared with a plain loop.
#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

TEST(fastflow_optimize, removes_collectors_that_only_pass_on) {
    source first;
    ff_Farm<long> farm(some<twice>(2));
    many_sink last;
    ff_Pipe<> pipe(first, farm, last);
    EXPECT_EQ(pipe.cardinality(), 6);
    OptLevel level;
    level.remove_collector = true;
    EXPECT_EQ(optimize_static(pipe, level), 0);
    EXPECT_EQ(pipe.cardinality(), 5);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
}

TEST(fastflow_combine_farms, give_what_the_farms_gave) {
    for (const bool merge : {false, true}) {
        source emitter;
        sink collector;
        const twice between1, between2;
        ff_Farm<long> farm1(some<twice>(2)), farm2(some<twice>(3));
        farm1.add_emitter(emitter);
        farm2.add_collector(collector);
        auto pipe = combine_farms(farm1, &between1, farm2, &between2, merge);
        ASSERT_EQ(pipe.run_and_wait_end(), 0);
        EXPECT_EQ(collector.sum(), 16 * sum_of_all);
    }
    source emitter;
    sink collector;
    ff_Farm<long> farm1(some<twice>(2)), farm2(some<twice>(3));
    farm1.add_emitter(emitter);
    farm2.add_collector(collector);
    auto farm = combine_farms_a2a(farm1, farm2);
    EXPECT_EQ(farm.cardinality(), 7);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 4 * sum_of_all);
}

TEST(fastflow_combine_nodes_in_pipeline, saves_a_thread) {
    source first;
    ff_Farm<long> farm(some<twice>(2));
    sink last;
    auto front = combine_nodes_in_pipeline(first, farm);
    EXPECT_EQ(front.cardinality(), 4);
    auto whole = combine_nodes_in_pipeline(farm, last);
    EXPECT_EQ(getBB(&whole, &last), &farm);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
}
