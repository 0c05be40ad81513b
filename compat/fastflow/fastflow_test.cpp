// Programs against FastFlow's interface, each compared with a plain loop.
#include <atomic>
#include <mutex>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include <ff/ff.hpp>
#include <gtest/gtest.h>

using namespace ff;

namespace {

constexpr long count = 2000;

/// 1, 2, ... count.
struct source : ff_node_t<long> {
    explicit source(long how_many = count) : last(how_many) {}
    long* svc(long*) override {
        for (long i = 1; i <= last; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
    long last;
};
struct many_source : ff_monode_t<long> {
    long* svc(long*) override {
        for (long i = 1; i <= count; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
};
struct twice : ff_node_t<long> {
    long* svc(long* item) override {
        *item *= 2;
        return item;
    }
};
struct sink : ff_node_t<long> {
    long* svc(long* item) override {
        got.push_back(*item);
        delete item;
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    long sum() const { return std::accumulate(got.begin(), got.end(), 0L); }
    std::vector<long> got;
    int ends = 0;
};
struct many_sink : ff_minode_t<long> {
    long* svc(long* item) override {
        got.push_back(*item);
        channels.push_back(get_channel_id());
        delete item;
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    long sum() const { return std::accumulate(got.begin(), got.end(), 0L); }
    std::vector<long> got;
    std::vector<ssize_t> channels;
    int ends = 0;
};
constexpr long sum_of_all = count * (count + 1) / 2;

std::vector<long> in_order(long factor = 1) {
    std::vector<long> expected;
    for (long i = 1; i <= count; ++i)
        expected.push_back(i * factor);
    return expected;
}
template <typename Node>
std::vector<std::unique_ptr<ff_node>> some(int how_many) {
    std::vector<std::unique_ptr<ff_node>> nodes;
    for (int i = 0; i < how_many; ++i)
        nodes.push_back(make_unique<Node>());
    return nodes;
}

}  // namespace

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

TEST(fastflow_farm, workers_get_every_item_once) {
    source emitter;
    sink collector;
    ff_Farm<long> farm(some<twice>(3), emitter, collector);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 2 * sum_of_all);
    EXPECT_EQ(collector.ends, 3);
    EXPECT_EQ(farm.getNWorkers(), 3u);
    EXPECT_EQ(farm.cardinality(), 5);
}

TEST(fastflow_farm, without_a_collector_sends_to_the_next_stage) {
    source first;
    ff_Farm<long> farm(some<twice>(3));
    farm.remove_collector();
    farm.set_scheduling_ondemand(2);
    many_sink last;
    ff_Pipe<> pipe(first, farm, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
    EXPECT_EQ(last.ends, 3);
    for (const ssize_t channel : last.channels)
        EXPECT_TRUE(channel >= 0 && channel < 3);
}

TEST(fastflow_farm, made_of_a_function) {
    source first;
    ff_Farm<long> farm([](long* item, ff_node*) { return *item += 1, item; }, 2);
    sink last;
    ff_Pipe<> pipe(first, farm, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), sum_of_all + count);
}

TEST(fastflow_farm, ordered_keeps_order_and_lets_items_go) {
    struct odd_only : ff_node_t<long> {
        long* svc(long* item) override {
            if (*item % 2 != 0) return item;
            delete item;
            return GO_ON;
        }
    };
    for (const bool on_demand : {false, true}) {
        source first;
        ff_OFarm<long> farm(some<odd_only>(3));
        if (on_demand) farm.set_scheduling_ondemand();
        sink last;
        ff_Pipe<> pipe(first, farm, last);
        ASSERT_EQ(pipe.run_and_wait_end(), 0);
        std::vector<long> expected;
        for (long i = 1; i <= count; i += 2)
            expected.push_back(i);
        EXPECT_EQ(last.got, expected);
    }
}

TEST(fastflow_farm, workers_send_back_to_the_emitter) {
    struct master : ff_node_t<long> {
        explicit master(ff_loadbalancer* the_lb) : lb(the_lb) {}
        long* svc(long* item) override {
            if (item == nullptr) {
                for (long i = 1; i <= 100; ++i)
                    ff_send_out(new long(i));
                return GO_ON;
            }
            from_workers += lb->get_channel_id() >= 0;
            sum += *item;
            delete item;
            return ++back == 100 ? EOS : GO_ON;
        }
        ff_loadbalancer* lb;
        long sum = 0;
        int back = 0;
        int from_workers = 0;
    };
    ff_Farm<long> farm(some<twice>(2));
    master emitter(farm.getlb());
    farm.add_emitter(emitter);
    farm.remove_collector();
    ASSERT_EQ(farm.wrap_around(), 0);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(emitter.sum, 100 * 101);
    EXPECT_EQ(emitter.from_workers, 100);
}

TEST(fastflow_farm, load_balancer_of_the_program_chooses_the_worker) {
    struct always_last : ff_loadbalancer {
        size_t selectworker() override { return getnworkers() - 1; }
    };
    struct who : ff_node_t<long> {
        long* svc(long* item) override {
            *item = get_my_id();
            return item;
        }
    };
    source emitter;
    sink collector;
    ff_Farm<long> farm(some<who>(3), emitter, collector);
    farm.setlb(new always_last, true);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 2 * count);
}

TEST(fastflow_farm, all_gather_takes_one_item_of_each_worker) {
    struct to_all : ff_monode_t<long> {
        long* svc(long*) override {
            for (long i = 1; i <= 50; ++i)
                for (int to = 0; to < 3; ++to)
                    ff_send_out_to(new long(i), to);
            return EOS;
        }
    } emitter;
    struct adder : ff_minode_t<long> {
        long* svc(long* item) override {
            std::vector<long*> items;
            all_gather(item, items);
            for (long* each : items)
                equal = equal && each != nullptr && *each == *items[0];
            for (long* each : items)
                delete each;
            ++rounds;
            return GO_ON;
        }
        bool equal = true;
        int rounds = 0;
    } collector;
    ff_Farm<long> farm(some<twice>(3), emitter, collector);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_TRUE(collector.equal);
    EXPECT_EQ(collector.rounds, 50);
}

TEST(fastflow_accelerator, returns_the_results_of_each_stream) {
    ff_farm farm(true);
    std::vector<ff_node*> workers{new twice, new twice};
    farm.add_workers(workers);
    farm.add_collector(nullptr);
    farm.cleanup_workers();
    for (int stream = 0; stream < 3; ++stream) {
        ASSERT_EQ(farm.run_then_freeze(), 0);
        for (long i = 1; i <= count; ++i)
            ASSERT_TRUE(farm.offload(new long(i)));
        farm.offload(FF_EOS);
        long sum = 0;
        for (void* result = nullptr; farm.load_result(&result);) {
            sum += *static_cast<long*>(result);
            delete static_cast<long*>(result);
        }
        EXPECT_EQ(sum, 2 * sum_of_all);
        ASSERT_EQ(farm.wait_freezing(), 0);
    }
    EXPECT_EQ(farm.wait(), 0);
}

TEST(fastflow_accelerator, pipeline_gives_results_without_waiting) {
    ff_pipeline pipe(true);
    pipe.add_stage(new twice, true);
    pipe.add_stage(new twice, true);
    ASSERT_EQ(pipe.run(), 0);
    long got = 0;
    long sum = 0;
    const auto take = [&](void* result) {
        ++got;
        sum += *static_cast<long*>(result);
        delete static_cast<long*>(result);
    };
    void* result = nullptr;
    for (long i = 1; i <= count; ++i) {
        pipe.offload(new long(i));
        if (pipe.load_result_nb(&result)) take(result);
    }
    pipe.offload(FF_EOS);
    while (pipe.load_result(&result))
        take(result);
    EXPECT_EQ(pipe.wait(), 0);
    EXPECT_EQ(got, count);
    EXPECT_EQ(sum, 4 * sum_of_all);
}

TEST(fastflow_accelerator, thaws_fewer_workers) {
    struct noting : ff_node_t<long> {
        long* svc(long* item) override {
            delete item;
            ++seen;
            return GO_ON;
        }
        long seen = 0;
    };
    noting a, b, c;
    ff_farm farm(true);
    farm.add_workers({&a, &b, &c});
    ASSERT_EQ(farm.run_then_freeze(), 0);
    farm.offload(FF_EOS);
    farm.wait_freezing();
    ASSERT_EQ(farm.run_then_freeze(1), 0);
    for (int i = 0; i < 30; ++i)
        farm.offload(new long(i));
    farm.offload(FF_EOS);
    farm.wait_freezing();
    EXPECT_EQ(farm.wait(), 0);
    EXPECT_EQ(a.seen, 30);
    EXPECT_EQ(b.seen + c.seen, 0);
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

TEST(fastflow_node, broadcasts_to_all) {
    struct to_all : ff_monode_t<long> {
        long* svc(long*) override {
            for (long i = 1; i <= 10; ++i)
                broadcast_task(&values[i - 1]);
            return EOS;
        }
        long values[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    } emitter;
    struct adder : ff_node_t<long> {
        long* svc(long* item) override {
            sum += *item;
            return GO_ON;
        }
        long sum = 0;
    } a, b;
    ff_farm farm;
    farm.add_workers({&a, &b});
    farm.add_emitter(&emitter);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(a.sum, 55);
    EXPECT_EQ(b.sum, 55);
}

TEST(fastflow_node, that_fails_to_start_ends_the_stream) {
    struct failing : ff_node_t<long> {
        int svc_init() override { return -1; }
        long* svc(long* item) override { return item; }
    } middle;
    source first(0);
    sink last;
    ff_Pipe<> pipe(first, middle, last);
    EXPECT_EQ(pipe.run_and_wait_end(), -1);
    EXPECT_EQ(last.ends, 1);
}

TEST(fastflow_node, that_throws_ends_the_stream) {
    struct throwing : ff_node_t<long> {
        long* svc(long* item) override {
            delete item;
            throw std::runtime_error("no");
        }
    } middle;
    source first(1);
    sink last;
    ff_Pipe<> pipe(first, middle, last);
    EXPECT_EQ(pipe.run_and_wait_end(), -1);
    EXPECT_TRUE(last.got.empty());
    EXPECT_EQ(last.ends, 1);
}

TEST(fastflow_node, may_block_its_thread_while_others_run) {
    // With fewer threads than nodes, the waiting ones would keep the last from running.
    static std::mutex mutex;
    static std::condition_variable changed;
    static int here = 0;
    struct meeting : ff_node_t<long> {
        long* svc(long* item) override {
            std::unique_lock guard(mutex);
            ++here;
            changed.notify_all();
            changed.wait(guard, [] { return here == 8; });
            return item;
        }
    };
    source emitter(8);
    sink collector;
    ff_Farm<long> farm(some<meeting>(8), emitter, collector);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 36);
}

TEST(fastflow_node, turns_its_input_off_and_on) {
    struct gate : ff_node_t<long> {
        explicit gate(ff_loadbalancer* the_lb) : lb(the_lb) {}
        long* svc(long* item) override {
            if (item == nullptr) return GO_ON;
            if (lb->get_channel_id() == -1) {
                overlapped += busy;
                busy = true;
                input_active(false);
                return item;
            }
            busy = false;
            input_active(true);
            delete item;
            ++done_items;
            if (ended && done_items == 100) return EOS;
            return GO_ON;
        }
        void eosnotify(ssize_t id) override {
            if (id != -1) return;
            ended = true;
            if (done_items == 100) lb->broadcast_task(FF_EOS);
        }
        ff_loadbalancer* lb;
        bool busy = false;
        bool ended = false;
        int overlapped = 0;
        int done_items = 0;
    };
    source first(100);
    ff_Farm<long> farm(some<twice>(2));
    gate emitter(farm.getlb());
    farm.add_emitter(emitter);
    farm.remove_collector();
    farm.wrap_around();
    ff_Pipe<> pipe(first, farm);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(emitter.overlapped, 0);
    EXPECT_EQ(emitter.done_items, 100);
}

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

TEST(fastflow_load_balancer, stops_and_starts_workers) {
    struct noting : ff_node_t<long> {
        int svc_init() override { return ++starts, 0; }
        long* svc(long* item) override {
            delete item;
            ++seen;
            return GO_ON;
        }
        int starts = 0;
        int seen = 0;
    } a, b;
    struct master : ff_node_t<long> {
        explicit master(ff_loadbalancer* the_lb) : lb(the_lb) {}
        void sleep_all() {
            for (size_t i = 0; i < lb->getnworkers(); ++i)
                lb->ff_send_out_to(FF_GO_OUT, static_cast<int>(i));
            for (size_t i = 0; i < lb->getnworkers(); ++i)
                lb->wait_freezing(i);
        }
        int svc_init() override {
            for (size_t i = 0; i < lb->getnworkers(); ++i)
                lb->freeze(i);
            sleep_all();
            return 0;
        }
        long* svc(long*) override {
            for (int round = 0; round < 5; ++round) {
                for (size_t i = 0; i < 2; ++i)
                    lb->thaw(i, true);
                for (int i = 0; i < 2; ++i)
                    lb->ff_send_out_to(new long(i), i);
                sleep_all();
            }
            for (size_t i = 0; i < 2; ++i)
                lb->thaw(i, false);
            return EOS;
        }
        ff_loadbalancer* lb;
    };
    ff_farm farm;
    master emitter(farm.getlb());
    farm.add_workers({&a, &b});
    farm.add_emitter(&emitter);
    ASSERT_EQ(farm.run(), 0);
    EXPECT_EQ(farm.getlb()->waitlb(), 0);
    EXPECT_EQ(farm.wait(), 0);
    EXPECT_EQ(a.seen + b.seen, 10);
    EXPECT_EQ(a.starts, 7);
}

TEST(fastflow_queue, of_a_fixed_size_holds_no_more) {
    ff_buffernode queue(2, true);
    long items[3] = {1, 2, 3};
    EXPECT_TRUE(queue.ff_send_out(&items[0], -1, 1));
    EXPECT_TRUE(queue.ff_send_out(&items[1], -1, 1));
    EXPECT_FALSE(queue.ff_send_out(&items[2], -1, 3));
    EXPECT_FALSE(queue.ff_send_out(nullptr));
    size_t former = 0;
    EXPECT_TRUE(queue.change_inputqueuesize(3, former));
    EXPECT_EQ(former, 2u);
    EXPECT_TRUE(queue.ff_send_out(&items[2], -1, 1));
    long* got = nullptr;
    for (const long& each : items) {
        ASSERT_TRUE(queue.gather_task(got));
        EXPECT_EQ(got, &each);
    }
    EXPECT_FALSE(queue.gather_task(got, 1));
}
