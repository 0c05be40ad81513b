// Pipelines, all-to-alls and combinations of FastFlow's interface, each compared with a plain loop.
#include <sstream>

#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

TEST(fastflow_pipeline, passes_every_item_in_order) {
    source first;
    twice middle;
    sink last;
    ff_Pipe<> pipe(first, middle, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got, in_order(2));
    EXPECT_EQ(last.ends, 1);
    EXPECT_EQ(pipe.numThreads(), 3);
    EXPECT_GE(pipe.ffTime(), 0);
    std::ostringstream stats;
    pipe.ffStats(stats);
    EXPECT_NE(stats.str().find("2000 items"), std::string::npos);
}

TEST(fastflow_pipeline, runs_again_after_its_end) {
    source first;
    sink last;
    ff_Pipe<> pipe(first, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
}

TEST(fastflow_pipeline, has_stages_that_can_be_changed_and_nested) {
    source first;
    twice old, better, inner;
    sink last;
    ff_pipeline part;
    part.add_stage(&inner);
    part.add_stage(better);  // A copy.
    ff_pipeline pipe;
    pipe.add_stage(&first);
    pipe.add_stage(&old);
    pipe.add_stage(&last);
    EXPECT_TRUE(pipe.change_node(&old, &part));
    EXPECT_EQ(pipe.get_stageindex(&last), 2);
    EXPECT_EQ(pipe.get_node(1), &inner);
    pipe.setXNodeInputQueueLength(4, true);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got, in_order(4));
}

TEST(fastflow_pipeline, that_cannot_be_connected_says_so) {
    source first;
    ff_a2a all;
    std::vector<ff_node*> left{new twice, new twice}, right{new twice};
    all.add_firstset(left, 0, true);
    all.add_secondset(right, true);
    sink last;
    ff_pipeline pipe;
    pipe.add_stage(&first);  // One output, two plain nodes to send to.
    pipe.add_stage(&all);
    pipe.add_stage(&last);
    EXPECT_EQ(pipe.run_and_wait_end(), -1);
}

TEST(fastflow_pipeline, loops_until_the_first_stage_ends_it) {
    struct counter : ff_node_t<long> {
        long* svc(long* item) override {
            if (item == nullptr) {
                for (long i = 0; i < 10; ++i)
                    ff_send_out(new long(0));
                return GO_ON;
            }
            if (*item < 5) return item;
            delete item;
            return ++back == 10 ? EOS : GO_ON;
        }
        int back = 0;
    } first;
    struct plus_one : ff_node_t<long> {
        long* svc(long* item) override {
            ++*item;
            return item;
        }
    } second;
    ff_Pipe<> pipe(first, second);
    pipe.wrap_around();
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(first.back, 10);
}

TEST(fastflow_all_to_all, every_left_node_reaches_every_right_node) {
    struct left : ff_monode_t<long> {
        long* svc(long*) override {
            for (long i = 0; i < count; ++i)
                ff_send_out_to(new long(i),
                               static_cast<int>(i % static_cast<long>(get_num_outchannels())));
            return EOS;
        }
    };
    struct right : ff_minode_t<long> {
        long* svc(long* item) override {
            wrong += *item % 3 != get_my_id();
            per_channel[static_cast<size_t>(get_channel_id())] += 1;
            delete item;
            return GO_ON;
        }
        long wrong = 0;
        long per_channel[2] = {0, 0};
    };
    right r0, r1, r2;
    std::vector<left*> lefts{new left, new left};
    ff_a2a all;
    all.add_firstset(lefts, 0, true);
    all.add_secondset<right>({&r0, &r1, &r2});
    ASSERT_EQ(all.run_and_wait_end(), 0);
    for (const right* each : {&r0, &r1, &r2}) {
        EXPECT_EQ(each->wrong, 0);
        EXPECT_EQ(each->per_channel[0], each->per_channel[1]);
    }
    EXPECT_EQ(r0.per_channel[0] + r1.per_channel[0] + r2.per_channel[0], count);
}

TEST(fastflow_all_to_all, takes_plain_nodes_on_demand_between_stages) {
    many_source first;
    ff_a2a all;
    std::vector<ff_node*> left{new twice, new twice}, right{new twice, new twice, new twice};
    all.add_firstset(left, 1, true);
    all.add_secondset(right, true);
    many_sink last;
    ff_Pipe<> pipe(first, all, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 4 * sum_of_all);
    EXPECT_EQ(last.ends, 3);
}

TEST(fastflow_all_to_all, loops_between_its_sets) {
    struct left : ff_node_t<long> {
        ff_minode* in = nullptr;
        long* svc(long*) override { return EOS; }
    };
    struct asking : ff_minode_t<long> {
        long* svc(long* item) override {
            if (item == nullptr) return new long(1);
            forward += fromInput();
            if (*item < 8) return item;
            delete item;
            return EOS;
        }
        int forward = 0;
    };
    struct sending : ff_monode_t<long> {
        long* svc(long* item) override {
            ff_send_out_to(item, static_cast<int>(get_my_id()));
            return GO_ON;
        }
    };
    struct answering : ff_minode_t<long> {
        long* svc(long* item) override {
            *item *= 2;
            return item;
        }
    };
    asking a0, a1;
    sending s0, s1;
    answering b0, b1;
    ff_comb l0(&a0, &s0), l1(&a1, &s1);
    ff_a2a all;
    all.add_firstset<ff_node>({&l0, &l1});
    all.add_secondset<ff_node>({&b0, &b1});
    all.wrap_around();
    ASSERT_EQ(all.run_and_wait_end(), 0);
    EXPECT_EQ(a0.forward + a1.forward, 0);
}

TEST(fastflow_combine, runs_its_nodes_on_one_thread) {
    source first;
    twice a, b, c;
    sink last;
    ff_comb inner(a, b);
    ff_comb both(&inner, &c);
    EXPECT_EQ(both.getFirst(), &a);
    EXPECT_EQ(both.getLast(), &c);
    EXPECT_EQ(both.cardinality(), 1);
    ff_Pipe<> pipe(first, both, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got, in_order(8));
}

TEST(fastflow_combine, copies_const_nodes_and_ends_like_its_first) {
    const source first;
    const twice second;
    sink last;
    ff_pipeline pipe;
    pipe.add_stage(combine_nodes(first, second));
    pipe.add_stage(&last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got, in_order(2));
}

TEST(fastflow_combine, stands_as_emitter_and_collector) {
    source numbers;
    struct spread : ff_monode_t<long> {
        long* svc(long* item) override { return item; }
    } spreading;
    struct gather : ff_minode_t<long> {
        long* svc(long* item) override { return item; }
    } gathering;
    sink last;
    ff_comb emitter(&numbers, &spreading), collector(&gathering, &last);
    ff_farm farm;
    std::vector<ff_node*> workers{new twice, new twice};
    farm.add_workers(workers);
    farm.cleanup_workers();
    ASSERT_EQ(farm.add_emitter(&emitter), 0);
    ASSERT_EQ(farm.add_collector(&collector), 0);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
    EXPECT_EQ(last.ends, 1);
}

TEST(fastflow_all_to_all, plain_nodes_of_its_first_set_take_turns_among_the_second) {
    source first(10);
    struct returning : ff_node_t<long> {
        long* svc(long*) override { return ++sent > 10 ? EOS : new long(sent); }
        long sent = 0;
    } second;
    for (ff_node* sends : {static_cast<ff_node*>(&first), static_cast<ff_node*>(&second)}) {
        many_sink left, right;
        ff_a2a all;
        all.add_firstset<ff_node>({sends});
        all.add_secondset<ff_node>({&left, &right});
        ASSERT_EQ(all.run_and_wait_end(), 0);
        EXPECT_EQ(left.got, (std::vector<long>{1, 3, 5, 7, 9}));
        EXPECT_EQ(right.got, (std::vector<long>{2, 4, 6, 8, 10}));
    }
}

TEST(fastflow_combine, whose_first_node_sends_the_end_still_takes_items_of_its_other_inputs) {
    struct marking : ff_minode_t<long> {
        long* svc(long* item) override {
            came_back = !fromInput();
            return item;
        }
        void eosnotify(ssize_t) override { ff_send_out(EOS); }
        bool came_back = false;
    } in;
    struct counting : ff_monode_t<long> {
        explicit counting(const marking& before) : marks(before) {}
        long* svc(long* item) override {
            if (!marks.came_back) return item;
            sum += *item;
            delete item;
            return GO_ON;
        }
        const marking& marks;
        long sum = 0;
    } out(in);
    /// Sends back nothing before the end.
    struct keeping : ff_node_t<long> {
        long* svc(long* item) override {
            kept.push_back(item);
            return GO_ON;
        }
        void eosnotify(ssize_t) override {
            for (long* each : kept)
                ff_send_out(each);
        }
        std::vector<long*> kept;
    } last;
    source first;
    ff_comb both(&in, &out);
    ff_Pipe<> loop(both, last);
    loop.wrap_around();
    ff_Pipe<> whole(first, loop);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(out.sum, sum_of_all);
}
