// Names of FastFlow's interface that programs seldom use: that they are there, public, and do what
// they do in FastFlow.
#include <atomic>
#include <sstream>
#include <vector>

#include <ff/allocator.hpp>
#include <ff/map.hpp>
#include <ff/mdf.hpp>
#include <ff/ordering_policies.hpp>
#include <ff/parallel_for_internals.hpp>
#include <ff/sysdep.h>
#include <ff/taskf.hpp>
#include <ff/version.h>
#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

namespace {

template <typename Base>
struct once : Base {
    long* svc(long*) override {
        ++called;
        return this->EOS;
    }
    std::atomic<int> called{0};
};

void spend(unsigned long microseconds) {
    const unsigned long begun = getusec();
    while (getusec() - begun < microseconds)
        continue;
}

/// Of the items of source and the null pointer of a first call.
struct counts_nothing : ff_minode_t<long> {
    long* svc(long* item) override {
        item == nullptr ? ++nothing : ++items;
        delete item;
        return GO_ON;
    }
    long items = 0, nothing = 0;
};

}  // namespace

TEST(fastflow_names, nodes_with_several_channels_run_by_themselves) {
    once<ff_minode_t<long>> in;
    EXPECT_EQ(in.run(), 0);
    EXPECT_EQ(in.wait(), 0);
    EXPECT_EQ(in.called, 1);
    for (int stream = 0; stream != 2; ++stream) {
        EXPECT_EQ(in.run_then_freeze(), 0);
        EXPECT_EQ(in.wait_freezing(), 0);
    }
    EXPECT_EQ(in.wait(), 0);
    EXPECT_EQ(in.called, 3);
    once<ff_monode_t<long>> out;
    out.skipfirstpop(true);
    EXPECT_EQ(out.run(), 0);
    EXPECT_EQ(out.wait(), 0);
    EXPECT_EQ(out.called, 1);
}

TEST(fastflow_names, skipfirstpop_of_a_second_set_and_of_a_collector_calls_svc_with_nothing_first) {
    source left(3);
    counts_nothing right;
    right.skipfirstpop(true);
    ff_a2a both;
    ASSERT_EQ(both.add_firstset<ff_node>({&left}), 0);
    ASSERT_EQ(both.add_secondset<ff_node>({&right}), 0);
    both.skipfirstpop(false);
    ASSERT_EQ(both.run_and_wait_end(), 0);
    EXPECT_EQ(right.items, 3);
    EXPECT_EQ(right.nothing, 1);

    source worker(3);
    counts_nothing collector;
    ff_farm farm;
    farm.add_workers({&worker});
    farm.add_collector(&collector);
    farm.getlb()->skipfirstpop(true);
    farm.getgt()->skipfirstpop();
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.items, 3);
    EXPECT_EQ(collector.nothing, 1);
}

TEST(fastflow_names, a_load_balancer_starts_the_threads_of_its_farm) {
    struct by_hand : ff_farm {
        using ff_farm::prepare;
    } farm;
    sink left, right;
    source emitter(10);
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    EXPECT_EQ(farm.getlb()->runlb(), -1);  // not prepared
    ASSERT_EQ(farm.prepare(), 0);
    farm.getlb()->no_mapping();
    farm.getlb()->blocking_mode();
    for (long run = 1; run <= 2; ++run) {
        EXPECT_EQ(farm.getlb()->runlb(), 0);
        EXPECT_EQ(farm.getlb()->runWorkers(), 0);
        EXPECT_EQ(farm.getlb()->runlb(), -1);  // it runs
        EXPECT_EQ(farm.getlb()->wait(), 0);
        EXPECT_EQ(left.sum() + right.sum(), run * 55);
    }
    EXPECT_EQ(farm.getlb()->run(), 0);
    EXPECT_EQ(farm.getlb()->wait(), 0);
    EXPECT_EQ(left.sum() + right.sum(), 3 * 55);
}

TEST(fastflow_names, set_masterworker_brings_results_back_to_the_emitter) {
    struct master : ff_node_t<long> {
        long* svc(long* item) override {
            if (item == nullptr) {
                for (long i = 1; i <= 10; ++i)
                    ff_send_out(new long(i));
                return GO_ON;
            }
            sum += *item;
            delete item;
            return ++back == 10 ? EOS : GO_ON;
        }
        long sum = 0, back = 0;
    } emitter;
    twice left, right;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    EXPECT_EQ(farm.getlb()->set_masterworker(), 0);
    EXPECT_EQ(farm.getlb()->set_masterworker(), -1);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(emitter.sum, 110);
}

TEST(fastflow_names, set_filter_gives_a_farm_its_collector) {
    source worker(10);
    sink collector;
    ff_farm farm;
    farm.add_workers({&worker});
    farm.add_collector(nullptr);
    farm.getgt()->no_mapping();
    farm.getgt()->blocking_mode();
    EXPECT_EQ(farm.getgt()->set_filter(&collector), 0);
    EXPECT_EQ(farm.getgt()->set_filter(&collector), -1);
    ASSERT_EQ(farm.run_and_wait_end(), 0);
    EXPECT_EQ(collector.sum(), 55);
}

TEST(fastflow_names, an_ordered_farm_says_what_memory_it_was_given) {
    ff_farm farm;
    EXPECT_EQ(farm.ordering_memory_size(), 0);
    farm.set_ordered(10);
    farm.ordered_resize_memory(20);
    EXPECT_EQ(farm.ordering_memory_size(), 10);
}

TEST(fastflow_names, a_mapping_list_is_kept) {
    threadMapper& mapper = *threadMapper::instance();
    const std::vector<ssize_t> before(mapper.getMappingList(),
                                      mapper.getMappingList() + mapper.getCListSize());
    mapper.setMappingList(std::vector<size_t>{3, 1});
    EXPECT_EQ(mapper.getCoreId(0), 3);
    EXPECT_EQ(mapper.getCoreId(1), 1);
    mapper.setMappingList(std::vector<size_t>{});
    EXPECT_EQ(mapper.getCoreId(0), 3);
    mapper.setMappingList(std::vector<size_t>(before.begin(), before.end()));
    EXPECT_EQ(mapper.getCListSize(), before.size());
    EXPECT_GE(cache_line_size(), 16U);
}

TEST(fastflow_names, allocators_are_left_and_deleted) {
    ff_allocator mine;
    mine.deregisterAllocator(true);
    mine.deregisterAllocator();
    FFAllocator::instance()->deleteAllocator();
    FFAllocator::instance()->deleteAllocator(FFAllocator::instance()->newAllocator());
    void* const memory = getAlignedMemory(64, 100);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
    freeAlignedMemory(memory);
}

TEST(fastflow_names, of_the_machine) {
    volatile int there = 1;
    EXPECT_EQ(xchg(&there, 2), 1);
    EXPECT_EQ(there, 2);
    WMB();
    EXPECT_STREQ(FF_VERSION, "3.0.1");
}

TEST(fastflow_names, ff_taskf_has_what_programs_use_of_a_farm) {
    ff_taskf tasks(2);
    tasks.no_mapping();
    tasks.blocking_mode(true);
    tasks.cleanup_workers();
    EXPECT_EQ(tasks.getNWorkers(), 2U);
    EXPECT_EQ(tasks.ffTime(), 0);
    std::atomic<int> ran{0};
    tasks.AddTask([&ran] {
        spend(2000);
        ++ran;
    });
    ASSERT_EQ(tasks.run_and_wait_end(), 0);
    EXPECT_EQ(ran, 1);
    EXPECT_GE(tasks.ffTime(), 1);
    EXPECT_EQ(tasks.ffTime(), tasks.ffwTime());
}

namespace {
void add_nothing(int* const runs) {
    ++*runs;
}
}  // namespace

TEST(fastflow_names, ff_mdf_has_what_programs_use_of_a_pipeline) {
    int runs = 0;
    ff_mdf graph(add_nothing, &runs, 16, 2);
    graph.no_mapping();
    graph.blocking_mode();
    EXPECT_EQ(graph.run_then_freeze(), 0);
    EXPECT_EQ(graph.wait_freezing(), 0);
    EXPECT_EQ(graph.wait(), 0);
    EXPECT_EQ(runs, 1);
    std::ostringstream text;
    graph.ffStats(text);
}

TEST(fastflow_names, ff_Map_runs_by_itself) {
    struct sums : ff_Map<long, long, long> {
        sums() : ff_Map(2) {}
        long* svc(long*) override {
            ff_Map::parallel_reduce(
                sum, 0L, 0, 100, [](long i, long& mine) { mine += i; },
                [](long& all, long part) { all += part; });
            return EOS;
        }
        long sum = 0;
    } map;
    ASSERT_EQ(map.run(), 0);
    ASSERT_EQ(map.wait(), 0);
    EXPECT_EQ(map.sum, 4950);
    EXPECT_GE(map.ffTime(), 0);
    ASSERT_EQ(map.run_then_freeze(), 0);
    ASSERT_EQ(map.wait_freezing(), 0);
    ASSERT_EQ(map.wait(), 0);
    EXPECT_EQ(map.sum, 2 * 4950);
}

TEST(fastflow_names, loops_say_their_threads_and_time) {
    ParallelForReduce<long> loops(3, true, true, false);
    EXPECT_EQ(loops.getnw(), 3U);
    loops.parallel_for(
        0, 100, 1, 10, [](long) { spend(100); }, 2);
    EXPECT_EQ(loops.getnw(), 2U);
    EXPECT_GE(loops.ffTime(), 1);
    EXPECT_EQ(loops.ffTime(), loops.ffwTime());
    EXPECT_EQ(loops.getNWorkers(), 3U);
}
