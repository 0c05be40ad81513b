// What FastFlow's runtime calls in nodes, load balancers and gatherers beside svc(): callbackIn()
// and callbackOut(), of programs that define FF_TASK_CALLBACK, and what their own classes override.
#define FF_TASK_CALLBACK

#include <map>
#include <stdexcept>

#include <ff/ff.hpp>
#include <gtest/gtest.h>

using namespace ff;

namespace {

using calls = std::map<void*, int>;  // by argument

template <typename Base>
struct counting : Base {
    void callbackIn(void* with) override { ++in[with]; }
    void callbackOut(void* with) override { ++out[with]; }
    calls in, out;
};

long numbers[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

struct five : counting<ff_node_t<long>> {
    long* svc(long*) override {
        for (int i = 0; i != 5; ++i)
            ff_send_out(&numbers[i]);
        return EOS;
    }
};
struct odd : counting<ff_node_t<long>> {
    long* svc(long* item) override { return *item % 2 != 0 ? item : GO_ON; }
};
struct pass : counting<ff_node_t<long>> {
    long* svc(long* item) override { return item; }
};
struct many_pass : counting<ff_minode_t<long>> {
    long* svc(long* item) override { return item; }
};
struct last : counting<ff_node_t<long>> {
    long* svc(long*) override { return GO_ON; }
};

}  // namespace

TEST(fastflow_hooks, surround_items_of_plain_nodes) {
    five first;
    odd middle;
    last end;
    ff_Pipe<> pipe(first, middle, end);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(first.in, (calls{{nullptr, 1}}));
    EXPECT_EQ(first.out, (calls{{nullptr, 5 + 2}}));  // it returned EOS
    EXPECT_EQ(middle.in, (calls{{nullptr, 5}}));
    EXPECT_EQ(middle.out, (calls{{nullptr, 2 * 2 + 1}}));  // it returned two, and EOS came
    EXPECT_EQ(end.in, (calls{{nullptr, 2}}));
    EXPECT_EQ(end.out, calls());
}

TEST(fastflow_hooks, of_an_emitter_get_its_load_balancer) {
    five source;
    pass emitter;
    odd left, right;
    many_pass collector;
    last end;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    farm.add_collector(&collector);
    ff_Pipe<> pipe(source, farm, end);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(emitter.in, (calls{{farm.getlb(), 5}}));
    EXPECT_EQ(emitter.out, (calls{{farm.getlb(), 5 + 1}}));
    EXPECT_EQ(left.in[nullptr] + right.in[nullptr], 5);
    EXPECT_EQ(left.out[nullptr] + right.out[nullptr], 2 * 2 + 2);
    EXPECT_EQ(collector.in, (calls{{farm.getgt(), 2}}));
    EXPECT_EQ(collector.out, (calls{{nullptr, 2 + 1}}));
}

TEST(fastflow_hooks, that_throw_at_the_end_too_end_the_stream) {
    struct throwing : ff_monode_t<long> {
        long* svc(long*) override { return &numbers[0]; }
        void callbackOut(void*) override { throw std::runtime_error("thrown by callbackOut"); }
    } first;
    last left, right;
    ff_a2a both;
    both.add_firstset<ff_node>({&first});
    both.add_secondset<ff_node>({&left, &right});
    testing::internal::CaptureStderr();
    EXPECT_EQ(both.run_and_wait_end(), -1);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("at its end: thrown by callbackOut"), std::string::npos) << said;
}

TEST(fastflow_hooks, of_an_emitter_count_what_it_sends_in_svc) {
    struct sends : counting<ff_node_t<long>> {
        explicit sends(ff_farm& the_farm) : farm(the_farm) {}
        long* svc(long*) override {
            ff_send_out(&numbers[1]);
            farm.getlb()->ff_send_out_to(&numbers[2], 1);
            farm.getlb()->broadcast_task(&numbers[3]);
            return EOS;
        }
        ff_farm& farm;
    };
    ff_farm farm;
    sends emitter(farm);
    last left, right;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(emitter.in, (calls{{farm.getlb(), 1}}));
    EXPECT_EQ(emitter.out, (calls{{farm.getlb(), 3 + 1}}));
    EXPECT_EQ(left.in[nullptr] + right.in[nullptr], 4);
}

TEST(fastflow_hooks, of_nodes_with_several_channels_get_these) {
    struct sends : counting<ff_monode_t<long>> {
        long* svc(long*) override {
            for (int i = 0; i != 4; ++i)
                ff_send_out(&numbers[i]);
            ff_send_out_to(&numbers[5], 1);
            broadcast_task(&numbers[6]);
            return EOS;
        }
    } first;
    many_pass left, right, end;
    ff_a2a middle;
    ASSERT_EQ(middle.add_firstset<ff_node>({&first}), 0);
    ASSERT_EQ(middle.add_secondset<ff_node>({&left, &right}), 0);
    ff_Pipe<> pipe(middle, end);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(first.in, (calls{{first.getlb(), 1}}));
    EXPECT_EQ(first.out,
              (calls{{first.getlb(), 2 + 1}}));  // ff_send_out() of such a node is silent
    EXPECT_EQ(left.in, (calls{{left.getgt(), 3}}));
    EXPECT_EQ(left.out, (calls{{nullptr, 3 + 1}}));
    EXPECT_EQ(right.in, (calls{{right.getgt(), 4}}));
    EXPECT_EQ(end.in, (calls{{end.getgt(), 7}}));
    EXPECT_EQ(end.out, (calls{{end.getgt(), 7}}));  // it has no output
}

namespace {

struct watched : ff_node_t<long> {
    int svc_init() override {
        ++begun;
        return 0;
    }
    void svc_end() override { ++ended; }
    long* svc(long* item) override { return item; }
    int begun = 0, ended = 0;
};

struct own_lb : ff_loadbalancer {
    explicit own_lb(size_t most) : ff_loadbalancer(most) {}
    int svc_init() override {
        ++begun;
        return result;
    }
    void svc_end() override { ++ended; }
    void callback(int worker) override { ++chosen[worker]; }
    void* callback(int, void* item) override { return item; }
    std::map<int, int> chosen;
    int begun = 0, ended = 0, result = 0;
};
struct own_gt : ff_gatherer {
    explicit own_gt(int most) : ff_gatherer(most) {}
    int svc_init() override {
        ++begun;
        return ff_gatherer::svc_init();
    }
    void svc_end() override {
        ++ended;
        ff_gatherer::svc_end();
    }
    void notifyeos(int input) override { ++ends[input]; }
    std::map<int, int> ends;
    int begun = 0, ended = 0;
};

}  // namespace

TEST(fastflow_hooks, that_a_load_balancer_or_gatherer_overrides_are_called) {
    five source;
    watched emitter, left, right, collector;
    last end;
    ff_farm farm;
    auto* const lb = new own_lb(2);
    auto* const gt = new own_gt(2);
    farm.setlb(lb, true);
    farm.setgt(gt, true);
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    farm.add_collector(&collector);
    ff_Pipe<> pipe(source, farm, end);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(lb->begun, 1);
    EXPECT_EQ(lb->ended, 1);
    EXPECT_EQ(emitter.begun + emitter.ended, 0);  // only ff_loadbalancer's calls these
    EXPECT_EQ(lb->chosen[0] + lb->chosen[1], 5);
    EXPECT_EQ(gt->begun, 1);
    EXPECT_EQ(gt->ended, 1);
    EXPECT_EQ(collector.begun, 1);
    EXPECT_EQ(collector.ended, 1);
    EXPECT_EQ(gt->ends, (std::map<int, int>{{0, 1}, {1, 1}}));
    EXPECT_EQ(end.in, (calls{{nullptr, 5}}));
}

TEST(fastflow_hooks, a_load_balancer_that_fails_to_start_ends_the_stream) {
    own_lb lb(1);
    lb.result = -1;
    watched worker;
    ff_farm farm;
    farm.setlb(&lb);
    farm.add_workers({&worker});
    EXPECT_EQ(farm.run_and_wait_end(), -1);
    EXPECT_EQ(worker.ended, 1);
}

TEST(fastflow_hooks, nodes_take_channels_of_the_programs_own_class) {
    struct sends : ff_monode_t<long> {
        long* svc(long*) override {
            for (int i = 0; i != 4; ++i)
                ff_send_out(&numbers[i]);
            return EOS;
        }
    } first;
    struct only_second : own_lb {
        using own_lb::own_lb;
        size_t selectworker() override { return 1; }
        int svc_init() override { return ff_loadbalancer::svc_init(); }
    } lb(2);
    own_gt gt(1);
    first.setlb(&lb);
    many_pass left, right;
    right.setgt(&gt);
    EXPECT_EQ(first.getlb(), &lb);
    EXPECT_EQ(right.getgt(), &gt);
    ff_a2a both;
    ASSERT_EQ(both.add_firstset<ff_node>({&first}), 0);
    ASSERT_EQ(both.add_secondset<ff_node>({&left, &right}), 0);
    ASSERT_EQ(both.run_and_wait_end(), 0);
    EXPECT_EQ(left.in, calls());
    EXPECT_EQ(right.in, (calls{{&gt, 4}}));
    EXPECT_EQ(gt.ends, (std::map<int, int>{{0, 1}}));
    EXPECT_EQ(lb.ended, 1);
}
