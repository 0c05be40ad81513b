// Channels of FastFlow's interface: those that go back, and what reads, writes or chooses among all
// of them, each compared with a plain loop.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

namespace {

/// Goes round until it has gone `number % 5 + 1` rounds.
struct traveller {
    long number = 0;
    int home = 0;  // who sent it first
    int rounds = 0;
    bool arrived = false;

    bool next_round() { return arrived = ++rounds == static_cast<int>(number % 5) + 1; }
};
constexpr int rounds_of_all = count / 5 * (1 + 2 + 3 + 4 + 5);

using travellers = std::vector<traveller>;
travellers many_travellers() {
    travellers all(count);
    for (long i = 0; i != count; ++i)
        all[static_cast<std::size_t>(i)].number = i;
    return all;
}

struct departure : ff_node_t<traveller> {
    explicit departure(travellers& who) : all(who) {}
    traveller* svc(traveller*) override {
        for (traveller& each : all)
            ff_send_out(&each);
        return EOS;
    }
    travellers& all;
};
struct arrival : ff_minode_t<traveller> {
    traveller* svc(traveller* one) override {
        ++items;
        rounds += one->rounds;
        return GO_ON;
    }
    long items = 0, rounds = 0;
};

}  // namespace

TEST(fastflow_feedback, channel_of_a_node_with_several_outputs_comes_before_its_forward_ones) {
    struct entry : ff_minode_t<traveller> {
        traveller* svc(traveller* one) override {
            EXPECT_EQ(get_num_feedbackchannels(), 1U);
            EXPECT_EQ(get_channel_id(), 0);
            if (fromInput()) ++from_input;
            if (!one->arrived) return one;
            return ++arrived == count ? EOS : GO_ON;
        }
        long from_input = 0, arrived = 0;
    } first;
    struct turn : ff_monode_t<traveller> {
        traveller* svc(traveller* one) override {
            EXPECT_EQ(get_num_feedbackchannels(), 1U);
            EXPECT_EQ(get_num_outchannels(), 2U);
            if (one->next_round()) ff_send_out_to(one, 1);
            ff_send_out_to(one, 0);
            return GO_ON;
        }
    } second;
    travellers all = many_travellers();
    departure source(all);
    arrival last;
    ff_Pipe<> loop(first, second);
    loop.wrap_around();
    ff_Pipe<> whole(source, loop, last);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(first.from_input, count);
    EXPECT_EQ(first.arrived, count);
    EXPECT_EQ(last.items, count);
    EXPECT_EQ(last.rounds, rounds_of_all);
}

namespace {

constexpr int homes = 2;

/// Begins the half of the items, and ends when they have arrived. It gets back its own only, until
/// they are told to everybody.
struct home : ff_minode_t<traveller> {
    home(travellers& who, int which) : all(who), id(which) {}
    traveller* svc(traveller* one) override {
        if (one == nullptr) {
            for (traveller& each : all) {
                if (each.number % homes != id) continue;
                each.home = id;
                ff_send_out(&each);
            }
            return GO_ON;
        }
        EXPECT_FALSE(fromInput());
        if (!one->arrived) {
            wrong += one->home != id;
            return one;
        }
        ++told;
        if (one->home == id) ++mine;
        return told == count ? EOS : GO_ON;
    }
    travellers& all;
    const int id;
    long wrong = 0, told = 0, mine = 0;
};
struct spread : ff_monode_t<traveller> {
    traveller* svc(traveller* one) override {
        ff_send_out_to(one, static_cast<int>((one->number + one->rounds) %
                                             static_cast<long>(get_num_outchannels())));
        return GO_ON;
    }
};
struct pass_on : ff_minode_t<traveller> {
    traveller* svc(traveller* one) override {
        wrong_channels += one->home != get_channel_id();
        ++passed;
        return one;
    }
    long wrong_channels = 0, passed = 0;
};
struct send_home : ff_monode_t<traveller> {
    traveller* svc(traveller* one) override {
        EXPECT_EQ(get_num_feedbackchannels(), static_cast<std::size_t>(homes));
        EXPECT_EQ(get_num_outchannels(), static_cast<std::size_t>(homes) + 1);
        if (one->next_round()) {
            broadcast_task(one);  // With feedback, to feedback channels only: to both homes.
            ff_send_out_to(one, homes);
        } else {
            ff_send_out_to(one, one->home);
        }
        return GO_ON;
    }
};

}  // namespace

TEST(fastflow_feedback, channels_of_an_all_to_all_are_in_the_order_of_its_first_set) {
    travellers all = many_travellers();
    home home0(all, 0), home1(all, 1);
    spread spread0, spread1;
    pass_on pass0, pass1, pass2;
    send_home back0, back1, back2;
    ff_comb left0(&home0, &spread0), left1(&home1, &spread1);
    ff_comb right0(&pass0, &back0), right1(&pass1, &back1), right2(&pass2, &back2);
    ff_a2a sets;
    sets.add_firstset<ff_node>({&left0, &left1});
    sets.add_secondset<ff_node>({&right0, &right1, &right2});
    sets.wrap_around();
    arrival last;
    ff_pipeline whole;
    whole.add_stage(&sets);
    whole.add_stage(&last);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    for (const home* each : {&home0, &home1}) {
        EXPECT_EQ(each->wrong, 0);
        EXPECT_EQ(each->told, count);
        EXPECT_EQ(each->mine, count / homes);
    }
    long passed = 0;
    for (const pass_on* each : {&pass0, &pass1, &pass2}) {
        EXPECT_EQ(each->wrong_channels, 0);
        passed += each->passed;
    }
    EXPECT_EQ(passed, rounds_of_all);
    EXPECT_EQ(last.items, count);
    EXPECT_EQ(last.rounds, rounds_of_all);
}

TEST(fastflow_feedback, one_node_with_several_outputs_goes_back_to_each_node_of_a_first_set) {
    struct sender : ff_monode_t<traveller> {
        explicit sender(travellers& which) : mine(which) {}
        traveller* svc(traveller* back) override {
            if (back == nullptr) {
                for (traveller& each : mine) {
                    each.home = static_cast<int>(get_my_id());
                    ff_send_out(&each);
                }
                return GO_ON;
            }
            EXPECT_EQ(back->home, get_my_id());
            return ++returned == mine.size() ? EOS : GO_ON;
        }
        travellers& mine;
        std::size_t returned = 0;
    };
    struct returning : ff_monode_t<traveller> {
        traveller* svc(traveller* one) override {
            ff_send_out_to(one, one->home);
            return GO_ON;
        }
    } back;
    struct joining : ff_minode_t<traveller> {
        traveller* svc(traveller* one) override { return one; }
    } join;
    travellers all0 = many_travellers(), all1 = many_travellers();
    sender left0(all0), left1(all1);
    ff_comb right(&join, &back);
    ff_a2a sets;
    sets.add_firstset<ff_node>({&left0, &left1});
    sets.add_secondset<ff_node>({&right});
    sets.wrap_around();
    ASSERT_EQ(sets.run_and_wait_end(), 0);
    EXPECT_EQ(left0.returned, all0.size());
    EXPECT_EQ(left1.returned, all1.size());
}

TEST(fastflow_feedback, all_gather_of_an_emitter_takes_one_item_from_each_of_its_inputs) {
    struct telling : ff_monode_t<long> {
        long* svc(long*) override {
            for (long& each : numbers = in_order())
                broadcast_task(&each);
            return EOS;
        }
        std::vector<long> numbers;
    } first;
    struct times : ff_node_t<long> {
        long* svc(long* number) override { return new long(*number * (get_my_id() + 1)); }
    } one, two, three;
    struct gathering : ff_monode_t<long> {
        explicit gathering(ff_loadbalancer* of_farm) : lb(of_farm) {}
        long* svc(long* item) override {
            std::vector<long*> items(3, nullptr);
            EXPECT_EQ(lb->all_gather(item, reinterpret_cast<void**>(items.data())), 0);
            auto* const sum = new long(0);
            for (std::size_t i = 0; i != items.size(); ++i) {
                if (items[i] == nullptr) continue;
                wrong_channels += *items[i] != (rounds + 1) * static_cast<long>(i + 1);
                *sum += *items[i];
                delete items[i];
            }
            ++rounds;
            return sum;
        }
        ff_loadbalancer* lb;
        long rounds = 0, wrong_channels = 0;
    };
    ff_farm farm1, farm2;
    farm1.add_emitter(&first);
    farm1.add_workers({&one, &two, &three});
    gathering second(farm2.getlb());
    twice left, right;
    sink last;
    farm2.add_emitter(&second);
    farm2.add_workers({&left, &right});
    farm2.add_collector(&last);
    ff_pipeline whole;
    whole.add_stage(&farm1);
    whole.add_stage(&farm2);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(second.rounds, count);
    EXPECT_EQ(second.wrong_channels, 0);
    EXPECT_EQ(last.sum(), 2 * (1 + 2 + 3) * sum_of_all);
}

TEST(fastflow_feedback, a_collector_asks_its_farm_s_gatherer) {
    struct collecting : ff_minode_t<long> {
        explicit collecting(ff_gatherer* of_farm) : gt(of_farm) {}
        long* svc(long* item) override {
            wrong += gt->get_channel_id() != *item % 3;
            most = std::max(most, gt->getnworkers());
            ++items;
            delete item;
            return GO_ON;
        }
        ff_gatherer* gt;
        long items = 0, wrong = 0;
        std::size_t most = 0;
    };
    struct choosing : ff_monode_t<long> {
        long* svc(long*) override {
            for (long i = 0; i != count; ++i)
                ff_send_out_to(new long(i), static_cast<int>(i % 3));
            return EOS;
        }
    } emitter;
    struct same : ff_node_t<long> {
        long* svc(long* item) override { return item; }
    } one, two, three;
    ff_farm farm;
    collecting collector(farm.getgt());
    farm.add_emitter(&emitter);
    farm.add_workers({&one, &two, &three});
    farm.add_collector(&collector);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.items, count);
    EXPECT_EQ(collector.wrong, 0);
    EXPECT_LE(collector.most, 3U);
    EXPECT_GE(collector.most, 1U);
}

TEST(fastflow_feedback, a_node_asks_which_channel_is_next_and_sends_there) {
    struct choosing : ff_monode {
        void* svc(void*) override {
            svector<ff_node*> outputs;
            get_out_nodes(outputs);
            EXPECT_EQ(outputs.size(), 2U);
            for (long i = 0; i != count; ++i) {
                const int next = get_next_free_channel();
                EXPECT_TRUE(next == 0 || next == 1);
                ff_send_out(new long(next));  // Goes where it was said.
            }
            return EOS;
        }
    } first;
    struct counting : ff_node_t<long> {
        long* svc(long* item) override {
            wrong += *item != get_my_id();
            ++items;
            delete item;
            return GO_ON;
        }
        long items = 0, wrong = 0;
    } left, right;
    ff_farm farm;
    farm.add_emitter(&first);
    farm.add_workers({&left, &right});
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(left.items + right.items, count);
    EXPECT_EQ(left.wrong + right.wrong, 0);
}

TEST(fastflow_feedback, channels_of_an_outer_block_come_before_those_of_the_blocks_in_it) {
    struct first : ff_minode_t<long> {
        long* svc(long* item) override {
            if (item == nullptr) return &number;
            from.push_back(get_channel_id());
            return ++number == 4 ? EOS : item;
        }
        long number = 1;
        std::vector<ssize_t> from;
    } begin;
    /// Sends back what it is to, and the rest on.
    struct part : ff_monode_t<long> {
        explicit part(long which) : mine(which) {}
        long* svc(long* item) override {
            ff_send_out_to(item, *item == mine ? 0 : 1);
            return GO_ON;
        }
        const long mine;
    } inner(1), outer(2);
    struct last_part : ff_node_t<long> {
        long* svc(long* item) override { return item; }
    } outermost;
    ff_Pipe<> pipe1(begin, inner);
    pipe1.wrap_around();
    ff_Pipe<> pipe2(pipe1, outer);
    pipe2.wrap_around();
    ff_Pipe<> pipe3(pipe2, outermost);
    pipe3.wrap_around();
    ASSERT_EQ(pipe3.run_and_wait_end(), 0);
    EXPECT_EQ(begin.from, (std::vector<ssize_t>{2, 1, 0}));
}

TEST(fastflow_feedback, outputs_to_an_outer_block_come_after_a_collector_s_own_and_before_others) {
    struct pass : ff_minode_t<long> {
        long* svc(long* item) override { return item; }
    } begin, second;
    struct same : ff_monode_t<long> {
        long* svc(long* item) override { return item; }
    } emitter, collector, end;
    twice worker;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&worker});
    farm.add_collector(&collector);
    farm.wrap_around();
    ff_Pipe<> inner(second, farm);
    inner.wrap_around();
    ff_Pipe<> whole(begin, inner);
    whole.wrap_around();
    ASSERT_EQ(whole.dryrun(), 0);
    const auto& to = collector.getlb()->getWorkers();
    ASSERT_EQ(to.size(), 3U);
    EXPECT_EQ(to[0], &emitter);
    EXPECT_EQ(to[1], &begin);
    EXPECT_EQ(to[2], &second);
}
