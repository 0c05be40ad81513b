// Farms and accelerators of FastFlow's interface, each compared with a plain loop.
#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

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

TEST(fastflow_farm, ordered_keeps_the_order_of_an_emitter_that_chooses_workers) {
    struct choosing : ff_monode_t<long> {
        long* svc(long*) override {
            for (long i = 1; i <= count; ++i) {
                if (i % 7 < 4)
                    ff_send_out(new long(i));
                else
                    ff_send_out_to(new long(i), static_cast<int>(i % 5 % 3));
            }
            return EOS;
        }
    };
    choosing first;
    ff_OFarm<long> farm(some<twice>(3));
    sink last;
    farm.add_emitter(first);
    farm.add_collector(last);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(last.got, in_order(2));
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
