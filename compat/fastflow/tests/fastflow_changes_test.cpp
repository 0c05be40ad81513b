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

namespace {

struct plus_one_copied : ff_node_t<long> {
    long* svc(long* item) override {
        ++*item;
        return item;
    }
};
struct spread_copied : ff_monode_t<long> {
    long* svc(long* item) override { return item; }
};
struct pass_many : ff_minode_t<long> {
    long* svc(long* item) override { return item; }
};

}  // namespace

TEST(fastflow_pipeline, stages_are_inserted_and_removed) {
    source first;
    twice a, b;
    plus_one_copied one;
    sink last;
    ff_Pipe<> pipe(first, a, last);
    pipe.insert_stage(2, &one);
    pipe.insert_stage(3, &b);
    EXPECT_EQ(pipe.get_stageindex(&b), 3);
    pipe.remove_stage(1);
    EXPECT_EQ(pipe.get_stageindex(&one), 1);
    EXPECT_EQ(pipe.cardinality(), 4);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * (sum_of_all + count));
}

TEST(fastflow_farm, gets_another_emitter_and_other_workers) {
    source wrong(1), emitter;
    twice before;
    plus_one_copied left, right;
    sink last;
    ff_farm farm;
    farm.add_emitter(&wrong);
    farm.add_workers({&before});
    farm.add_collector(&last);
    EXPECT_EQ(farm.change_emitter(&emitter), 0);
    EXPECT_EQ(farm.change_workers({&left, &right}), 0);
    EXPECT_EQ(farm.getEmitter(), &emitter);
    EXPECT_EQ(farm.getNWorkers(), 2U);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), sum_of_all + count);

    const source copied(10);
    twice worker;
    sink end;
    ff_farm another;
    another.add_workers({&worker});
    another.add_collector(&end);
    EXPECT_EQ(another.change_emitter(copied), 0);
    ASSERT_EQ(another.run_and_wait_end(), 0);
    EXPECT_EQ(end.sum(), 2 * 55);
}

TEST(fastflow_all_to_all, gets_other_sets) {
    twice before;
    source left0, left1(10);
    many_sink wrong, right0, right1;
    ff_a2a all;
    all.add_firstset<ff_node>({&before});
    all.add_secondset<ff_node>({&wrong});
    EXPECT_EQ(all.change_firstset<ff_node>({&left0, &left1}), 0);
    EXPECT_EQ(all.change_secondset<ff_node>({&right0, &right1}), 0);
    ASSERT_EQ(all.get_firstset().size(), 2U);
    EXPECT_EQ(all.get_firstset()[1], &left1);
    EXPECT_EQ(all.get_secondset()[0], &right0);
    EXPECT_EQ(all.getFirstSet(), all.get_firstset());
    EXPECT_EQ(all.getSecondSet(), all.get_secondset());
    ASSERT_EQ(all.run_and_wait_end(), 0);
    EXPECT_EQ(right0.sum() + right1.sum(), sum_of_all + 55);
    EXPECT_EQ(wrong.ends, 0);
}

TEST(fastflow_combine, gets_another_first_and_last_node) {
    source first;
    twice a, b, c;
    plus_one_copied one, two;
    sink last;
    ff_comb both(&a, &b);
    EXPECT_EQ(both.replace_first(&one), &a);
    EXPECT_EQ(both.replace_last(&two), &b);
    ff_comb three(&both, &c);
    EXPECT_EQ(three.replace_first(&a), nullptr);  // A combination.
    EXPECT_TRUE(three.changeFirst(&a));
    EXPECT_TRUE(three.changeLast(&b));
    EXPECT_EQ(three.getFirst(), &a);
    EXPECT_EQ(three.getLast(), &b);
    ff_Pipe<> pipe(first, three, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 4 * sum_of_all + 2 * count);  // (2 i + 1) * 2
}

TEST(fastflow_combine, has_types_and_an_owner) {
    struct to_double : ff_node_t<long, double> {
        double* svc(long* item) override {
            const std::unique_ptr<long> owned(item);
            return new double(static_cast<double>(*item) / 2);
        }
    } half;
    struct back : ff_node_t<double, long> {
        long* svc(double* item) override {
            const std::unique_ptr<double> owned(item);
            return new long(static_cast<long>(*item * 4));
        }
    } four;
    ff_comb_t typed(&half, &four);
    static_assert(std::is_same_v<decltype(typed), ff_comb_t<long, double, long>>);
    static_assert(std::is_same_v<decltype(typed)::T_t, double>);
    const plus_one_copied one;
    twice doubling;
    source first;
    sink last;
    ff_Pipe<> pipe(first, typed, unique_combine_nodes(one, doubling), last);
    EXPECT_EQ(pipe.cardinality(), 4);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * (2 * sum_of_all + count));
}

TEST(fastflow_combine, with_the_ends_of_a_pipeline_saves_their_threads) {
    source first;
    plus_one_copied one;
    twice before, after;
    sink last;
    ff_Pipe<> inner(before, after);
    EXPECT_EQ(combine_with_firststage(inner, &one), 0);
    EXPECT_EQ(combine_with_laststage(inner, new plus_one_copied, true), 0);
    EXPECT_EQ(inner.cardinality(), 2);
    ff_Pipe<> pipe(first, inner, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 4 * (sum_of_all + count) + count);
}

TEST(fastflow_combine, with_the_ends_of_sets_gives_each_node_a_copy) {
    many_source first;
    many_sink last;
    ff_a2a all;
    all.add_firstset<ff_node>({new spread_copied, new spread_copied}, 0, true);
    all.add_secondset<ff_node>({new pass_many, new pass_many}, true);
    ff_pipeline inner;
    inner.add_stage(&all);
    plus_one_copied one;
    twice two;
    EXPECT_EQ(combine_with_firststage(inner, &one), 0);
    EXPECT_EQ(combine_with_laststage(inner, &two), 0);
    ff_Pipe<> pipe(first, inner, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(last.sum(), 2 * (sum_of_all + count));
}

TEST(fastflow_combine_farms, with_as_many_workers_combines_each_two) {
    source emitter;
    sink collector;
    ff_Farm<long> farm1(some<twice>(3)), farm2(some<plus_one_copied>(3));
    farm1.add_emitter(emitter);
    farm2.add_collector(collector);
    auto farm = combine_farms_nf(farm1, farm2);
    EXPECT_EQ(farm.cardinality(), 5);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 2 * sum_of_all + count);
}

TEST(fastflow_combine_farms, with_an_ordered_first_one_keeps_its_order) {
    source emitter;
    sink collector;
    ff_OFarm<long> farm1(some<twice>(3));
    farm1.add_emitter(emitter);
    ff_OFarm<long> farm2(some<plus_one_copied>(2));
    farm2.add_collector(collector);
    auto pipe = combine_ofarm_farm(farm1, farm2);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    std::vector<long> expected;
    for (long i = 1; i <= count; ++i)
        expected.push_back(2 * i + 1);
    EXPECT_EQ(collector.got, expected);
}

TEST(fastflow_farm, gets_another_emitter_between_two_runs) {
    source before(10), after(20);
    twice worker;
    sink last;
    ff_farm farm;
    farm.add_emitter(&before);
    farm.add_workers({&worker});
    farm.add_collector(&last);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * 55);
    EXPECT_EQ(farm.change_emitter(&after), 0);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * (55 + 210));
}

TEST(fastflow_changes, of_inner_blocks_hold_for_the_next_run) {
    source first;
    twice before, worker;
    plus_one_copied after;
    spread_copied left, other_left;
    pass_many right;
    twice of_both, of_all;
    sink last;
    ff_farm farm;
    farm.add_workers({&before, &worker});
    farm.add_collector(nullptr);
    ff_comb both(&of_both, &left);
    ff_a2a sets;
    sets.add_firstset<ff_node>({&both});
    sets.add_secondset<ff_node>({&right});
    ff_pipeline inner;
    inner.add_stage(&farm);
    inner.add_stage(&of_all);
    ff_Pipe<> whole(first, inner, sets, last);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 8 * sum_of_all);

    EXPECT_TRUE(inner.change_node(&of_all, &after));
    last.got.clear();
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 4 * sum_of_all + 2 * count);

    EXPECT_TRUE(both.change_node(&of_both, &of_all));
    EXPECT_EQ(farm.change_workers({&of_both}), 0);
    last.got.clear();
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 4 * sum_of_all + 2 * count);

    EXPECT_TRUE(sets.change_node(&both, &other_left));
    last.got.clear();
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all + count);
}

TEST(fastflow_accelerator, whose_worker_was_changed_while_it_was_frozen_thaws_with_the_other) {
    twice left, before;
    plus_one_copied after;
    ff_farm farm(true);
    farm.add_workers({&before, &left});
    farm.add_collector(nullptr);
    const auto stream = [&](int workers, long offloaded_before) {
        for (long i = 1; i <= offloaded_before; ++i)
            EXPECT_TRUE(farm.offload(new long(i)));
        EXPECT_EQ(farm.run_then_freeze(workers), 0);
        for (long i = offloaded_before + 1; i <= count; ++i)
            EXPECT_TRUE(farm.offload(new long(i)));
        farm.offload(FF_EOS);
        EXPECT_EQ(farm.wait_freezing(), 0);
    };
    const auto results = [&] {
        long sum = 0;
        for (void* result = nullptr; farm.load_result(&result);) {
            sum += *static_cast<long*>(result);
            delete static_cast<long*>(result);
        }
        return sum;
    };
    stream(-1, 0);
    // What nobody has loaded, and what is offloaded now, is not lost.
    EXPECT_TRUE(farm.change_node(&before, &after));
    stream(1, 5);
    EXPECT_EQ(results(), 2 * sum_of_all);
    EXPECT_EQ(results(), sum_of_all + count);
    stream(2, 0);
    const long both = results();
    EXPECT_GT(both, sum_of_all + count);
    EXPECT_LT(both, 2 * sum_of_all);
    EXPECT_EQ(farm.wait(), 0);
}

TEST(fastflow_changes, that_cannot_be_connected_are_refused_when_the_block_is_thawed) {
    source first(10);
    twice middle;
    sink last;
    ff_Pipe<> inner(middle);
    ff_Pipe<> pipe(first, inner, last);
    ASSERT_EQ(pipe.run_then_freeze(), 0);
    ASSERT_EQ(pipe.wait_freezing(), 0);
    inner.remove_stage(0);
    EXPECT_EQ(pipe.run_then_freeze(), -1);
    inner.add_stage(&middle);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * 2 * 55);
}
