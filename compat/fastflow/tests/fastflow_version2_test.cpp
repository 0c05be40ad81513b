// Programs of FastFlow 2, in which ff_farm is a template.
#define AMALGAM_FASTFLOW_2
#include <ff/farm.hpp>
#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

namespace {

struct choosing : ff_loadbalancer {
    explicit choosing(int max_num_workers) : ff_loadbalancer(max_num_workers) {}
    size_t selectworker() override { return 1; }
    void* callback(int worker, void* task) override {
        chosen.push_back(worker);
        return answers ? task : nullptr;
    }
    std::vector<int> chosen;
    bool answers = true;
};
struct last_first : ff_gatherer {
    explicit last_first(int max_num_workers) : ff_gatherer(max_num_workers) {}
    ssize_t selectworker() override {
        ++asked;
        return ff_gatherer::selectworker();
    }
    int asked = 0;
};

}  // namespace

TEST(fastflow_farm_of, makes_a_load_balancer_and_a_gatherer_of_the_program_s_classes) {
    source emitter;
    sink collector;
    twice a;
    twice b;
    ff_farm<choosing, last_first> farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&a, &b});
    farm.add_collector(&collector);
    choosing* const lb = farm.getlb();
    last_first* const gt = farm.getgt();
    ASSERT_NE(lb, nullptr);
    ASSERT_NE(gt, nullptr);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.got, in_order(2));
    EXPECT_EQ(lb->chosen, std::vector<int>(count, 1));
    EXPECT_GE(gt->asked, count);
}

TEST(fastflow_farm_of, without_arguments_is_the_usual_farm) {
    twice a;
    twice b;
    ff_farm<> farm(true);
    farm.add_workers({&a, &b});
    farm.add_collector(nullptr);
    ASSERT_EQ(farm.run(), 0);
    for (long i = 1; i <= count; ++i)
        ASSERT_TRUE(farm.offload(new long(i)));
    farm.offload(FF_EOS);
    long sum = 0;
    for (void* result = nullptr; farm.load_result(&result);) {
        sum += *static_cast<long*>(result);
        delete static_cast<long*>(result);
    }
    EXPECT_EQ(farm.wait(), 0);
    EXPECT_EQ(sum, 2 * sum_of_all);
    ff_farm newer(std::vector<ff_node*>{&a, &b});  // As in FastFlow 3.
    EXPECT_EQ(newer.getNWorkers(), 2u);
}

TEST(fastflow_ofarm, keeps_order_between_its_own_emitter_and_collector) {
    source first;
    struct stream : ff_node_t<long> {
        long* svc(long* item) override {
            ff_send_out(item);
            return GO_ON;
        }
    } emitter;
    twice a;
    twice b;
    twice c;
    sink collector;
    ff_ofarm farm;
    farm.setEmitterF(&first);
    farm.setEmitterF(&emitter);
    farm.add_workers({&a, &b, &c});
    farm.setCollectorF(&collector);
    EXPECT_EQ(farm.getEmitter(), &emitter);
    EXPECT_EQ(farm.getCollector(), &collector);
    ff_pipeline pipe;
    pipe.add_stage(&first);
    pipe.add_stage(&farm);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(collector.got, in_order(2));
}

TEST(fastflow_ofarm, without_a_collector_passes_results_on_in_order) {
    twice a;
    twice b;
    ff_ofarm farm(true);
    farm.add_workers({&a, &b});
    ASSERT_EQ(farm.run(), 0);
    for (long i = 1; i <= count; ++i)
        ASSERT_TRUE(farm.offload(new long(i)));
    farm.offload(FF_EOS);
    std::vector<long> got;
    for (void* result = nullptr; farm.load_result(&result);) {
        const std::unique_ptr<long> item(static_cast<long*>(result));
        got.push_back(*item);
    }
    EXPECT_EQ(farm.wait(), 0);
    EXPECT_EQ(got, in_order(2));
}

TEST(fastflow_load_balancer, callback_that_returns_no_item_fails_the_run) {
    struct sends_one : ff_node_t<long> {
        long* svc(long*) override { return ff_send_out(&item), EOS; }
        long item = 1;
    } emitter;
    sink collector;
    twice a;
    twice b;
    ff_farm<choosing> farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&a, &b});
    farm.add_collector(&collector);
    farm.getlb()->answers = false;
    EXPECT_EQ(farm.run_and_wait_end(), -1);
    EXPECT_TRUE(collector.got.empty());
}
