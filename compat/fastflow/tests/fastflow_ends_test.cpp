// Nodes of FastFlow's interface that fail or end before their stream does, and what comes after.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <mutex>
#include <stdexcept>

#include <ff/parallel_for.hpp>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

namespace {

/// Items that nobody deletes, of which each stream has its own.
struct numbered : ff_node_t<long> {
    explicit numbered(long how_many) : last(how_many) {}
    int svc_init() override { return ++stream, sent = 0, 0; }
    long* svc(long*) override {
        return sent == last ? EOS : reinterpret_cast<long*>(stream * 1'000'000L + 8 * ++sent);
    }
    long last;
    long stream = 0;
    long sent = 0;
};
struct collecting : ff_node_t<long> {
    int svc_init() override { return got.clear(), 0; }
    long* svc(long* item) override {
        got.push_back(reinterpret_cast<long>(item));
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    std::vector<long> got;
    int ends = 0;
};
struct passing : ff_node_t<long> {
    long* svc(long* item) override { return item; }
};
/// Returns `mark` for the item of that number of each stream.
struct ending_at : ff_node_t<long> {
    explicit ending_at(long number, void* the_mark = FF_EOS) : at(number), mark(the_mark) {}
    int svc_init() override { return seen = 0, 0; }
    long* svc(long* item) override { return ++seen == at ? static_cast<long*>(mark) : item; }
    long at;
    void* mark;
    long seen = 0;
};
std::vector<long> numbers(long stream, long last) {
    std::vector<long> all;
    for (long i = 1; i <= last; ++i)
        all.push_back(stream * 1'000'000 + 8 * i);
    return all;
}

}  // namespace

TEST(fastflow_freezing, goes_on_after_a_node_has_failed) {
    enum { in_init, below_0, in_svc, in_end, in_notify, nowhere };
    struct failing : ff_node_t<long> {
        int svc_init() override {
            if (where == in_init) throw std::runtime_error("no");
            return where == below_0 ? -1 : 0;
        }
        long* svc(long* item) override {
            if (where == in_svc) throw std::runtime_error("no");
            return item;
        }
        void svc_end() override {
            if (where == in_end) throw std::runtime_error("no");
        }
        void eosnotify(ssize_t) override {
            if (where == in_notify) throw std::runtime_error("no");
        }
        int where = nowhere;
    };
    for (const int where : {in_init, below_0, in_svc, in_end, in_notify}) {
        numbered first(50);
        failing middle;
        collecting last;
        ff_Pipe<> pipe(first, middle, last);
        for (int stream = 1; stream <= 4; ++stream) {
            middle.where = stream % 2 == 0 ? where : nowhere;
            ASSERT_EQ(pipe.run_then_freeze(), 0);
            EXPECT_EQ(pipe.wait_freezing(), stream % 2 == 0 ? -1 : 0) << where;
            EXPECT_EQ(last.ends, stream) << where;
            if (stream % 2 != 0) {
                EXPECT_EQ(last.got, numbers(stream, 50)) << where;
            }
        }
        EXPECT_EQ(pipe.wait(), -1);
    }
}

TEST(fastflow_freezing, drops_what_a_node_that_ended_early_has_not_taken) {
    for (const bool fixed : {false, true}) {
        numbered first(6000);
        ending_at middle(3);
        collecting last;
        ff_pipeline pipe(false, 4, 4, fixed);
        pipe.add_stage(&first);
        pipe.add_stage(&middle);
        pipe.add_stage(&last);
        for (int stream = 1; stream <= 4; ++stream) {
            ASSERT_EQ(pipe.run_then_freeze(), 0);
            ASSERT_EQ(pipe.wait_freezing(), 0);
            EXPECT_EQ(last.got, numbers(stream, 2));
        }
        EXPECT_EQ(pipe.wait(), 0);
    }
}

TEST(fastflow_run, begins_with_empty_queues) {
    numbered first(100);
    ending_at middle(3);
    collecting last;
    ff_Pipe<> pipe(first, middle, last);
    for (int stream = 1; stream <= 4; ++stream) {
        ASSERT_EQ(pipe.run_and_wait_end(), 0);
        EXPECT_EQ(last.got, numbers(stream, 2));
    }
}

TEST(fastflow_ordered_farm, begins_each_run_with_its_own_turns) {
    {
        numbered first(40);
        ending_at short_one(2);
        passing other;
        collecting last;
        ff_farm farm;
        farm.add_emitter(&first);
        farm.add_workers({&short_one, &other});
        farm.add_collector(&last);
        farm.set_ordered();
        for (int stream = 1; stream <= 4; ++stream) {
            short_one.at = stream < 4 ? 2 : 1000;
            ASSERT_EQ(farm.run_and_wait_end(), 0);
            if (stream < 4) {
                EXPECT_LT(last.got.size(), 40u);
            }
        }
        EXPECT_EQ(last.got, numbers(4, 40));
        EXPECT_EQ(farm.wait(), 0);
    }
}

TEST(fastflow_ordered_farm, keeps_the_order_of_streams_after_one_whose_workers_ended_early) {
    constexpr long never = 1'000'000;
    for (const bool fixed : {false, true}) {
        numbered first(601);  // Odd: streams do not begin with the same worker.
        ending_at one(never);
        ending_at other(never);
        collecting last;
        ff_farm farm(false, 4, 4, false, DEF_MAX_NUM_WORKERS, fixed);
        farm.add_emitter(&first);
        farm.add_workers({&one, &other});
        farm.add_collector(&last);
        farm.set_ordered();
        for (int stream = 1; stream <= 8; ++stream) {
            one.at = stream % 4 == 2 || stream % 4 == 0 ? 2 : never;
            other.at = stream % 4 == 0 ? 3 : never;
            ASSERT_EQ(farm.run_then_freeze(), 0);
            ASSERT_EQ(farm.wait_freezing(), 0);
            EXPECT_TRUE(std::is_sorted(last.got.begin(), last.got.end())) << stream;
            EXPECT_GT(last.got.front(), stream * 1'000'000) << stream;
            if (one.at == never) {
                EXPECT_EQ(last.got, numbers(stream, 601)) << stream;
            }
        }
        EXPECT_EQ(farm.wait(), 0);
    }
}

TEST(fastflow_accelerator, input_queue_of_a_fixed_size_holds_no_more) {
    struct gate : ff_node_t<long> {
        long* svc(long* item) override {
            const std::lock_guard wait(held);
            return item;
        }
        std::mutex held;
    };
    const auto taken = [](auto& block, gate& worker) {
        std::unique_lock held(worker.held);
        EXPECT_EQ(block.run(), 0);
        int accepted = 0;
        for (long i = 1; i <= 20; ++i)
            accepted += block.offload(reinterpret_cast<void*>(8 * i), 1) ? 1 : 0;
        held.unlock();
        block.offload(FF_EOS);
        EXPECT_EQ(block.wait(), 0);
        return accepted;
    };
    gate worker;
    ff_pipeline pipe(true, 2, 2, true);
    pipe.add_stage(&worker);
    EXPECT_LE(taken(pipe, worker), 3);  // One of them in svc().
    ff_farm farm(true, 2, 2, false, DEF_MAX_NUM_WORKERS, true);
    farm.add_workers({&worker});
    EXPECT_LE(taken(farm, worker), 6);  // The emitter has one, and the worker's queue two.
}

TEST(fastflow_accelerator, load_result_returns_when_no_result_will_come) {
    ff_Farm<long> farm([](long* item, ff_node*) { return item; }, 2, true);
    ASSERT_EQ(farm.run(), 0);
    long* result = nullptr;
    EXPECT_FALSE(farm.load_result(result, 0));
    EXPECT_FALSE(farm.load_result(result, 1));
    farm.offload(FF_EOS);
    for (int time = 0; time < 3; ++time) {
        result = nullptr;
        EXPECT_FALSE(farm.load_result(result));
        EXPECT_EQ(result, FF_EOS);
        if (time == 1) {
            EXPECT_EQ(farm.wait(), 0);
        }
    }
}

TEST(fastflow_run, of_a_block_that_runs_is_refused_and_leaves_it_running) {
    struct running_it : passing {
        long* svc(long* item) override {
            again = whole->run();
            return item;
        }
        ff_pipeline* whole = nullptr;
        int again = 0;
    } middle;
    numbered first(3);
    collecting last;
    ff_Pipe<> pipe(first, middle, last);
    middle.whole = &pipe;
    EXPECT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(middle.again, -1);
    EXPECT_EQ(last.got, numbers(1, 3));
}

TEST(fastflow_run, that_lacks_threads_fails_and_leaves_nobody_waiting) {
    // Stacks of 4 GiB, of which the address space has room for a few.
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    std::size_t usual = 0;
    pthread_attr_getstacksize(&attributes, &usual);
    rlimit former{};
    getrlimit(RLIMIT_AS, &former);
    rlimit limit = former;
    limit.rlim_cur = 60UL << 30;
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    if (pages > (limit.rlim_cur >> 13))
        GTEST_SKIP() << "no room below a limit, as under a sanitizer";
    if (setrlimit(RLIMIT_AS, &limit) != 0) GTEST_SKIP() << "no limit of the address space";
    numbered first(10);
    collecting last;
    ff_pipeline pipe;
    pipe.add_stage(&first);
    for (int i = 0; i < 30; ++i)
        pipe.add_stage(new passing, true);
    pipe.add_stage(&last);
    for (const bool freezes : {true, false}) {
        pthread_attr_setstacksize(&attributes, 4UL << 30);
        pthread_setattr_default_np(&attributes);
        EXPECT_EQ(freezes ? pipe.run_then_freeze() : pipe.run(), -1);
        pthread_attr_setstacksize(&attributes, usual);
        pthread_setattr_default_np(&attributes);
        pipe.wait_freezing();
        EXPECT_EQ(pipe.wait(), -1);
    }
    setrlimit(RLIMIT_AS, &former);
    EXPECT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got.size(), 10u);
}

TEST(fastflow_farm, selectworker_out_of_range_fails_the_run) {
    struct far_input : ff_gatherer {
        ssize_t selectworker() override { return 7; }
    };
    struct far_output : ff_loadbalancer {
        size_t selectworker() override { return 7; }
    };
    for (const bool output : {false, true}) {
        numbered emitter(10);
        passing a;
        passing b;
        collecting last;
        ff_farm farm;
        farm.add_emitter(&emitter);
        farm.add_workers({&a, &b});
        farm.add_collector(&last);
        if (output)
            farm.setlb(new far_output, true);
        else
            farm.setgt(new far_input, true);
        EXPECT_EQ(farm.run_and_wait_end(), -1);
        EXPECT_TRUE(last.got.empty());
    }
}

TEST(fastflow_block, refuses_wrong_parts) {
    passing node;
    ff_farm farm;
    EXPECT_EQ(farm.add_workers({&node, nullptr}), -1);
    EXPECT_EQ(farm.getNWorkers(), 0u);
    EXPECT_EQ(farm.add_workers({&node}), 0);
    farm.setlb(nullptr);
    farm.setgt(nullptr);
    EXPECT_NE(farm.getlb(), nullptr);
    EXPECT_NE(farm.getgt(), nullptr);
    ff_a2a all;
    EXPECT_EQ(all.add_firstset<ff_node>({nullptr}), -1);
    EXPECT_EQ(all.add_secondset<ff_node>({nullptr}), -1);
    numbered first(3);
    ff_node* const wrong[] = {&farm, nullptr};
    for (ff_node* each : wrong) {
        for (const bool left : {false, true}) {
            ff_comb comb(left ? each : &node, left ? &node : each);
            ff_pipeline pipe;
            pipe.add_stage(&first);
            pipe.add_stage(&comb);
            EXPECT_EQ(pipe.run_and_wait_end(), -1);
        }
    }
    ff_pipeline inner;
    ff_pipeline outer;
    outer.add_stage(&first);
    outer.add_stage(&inner);
    inner.add_stage(&outer);
    EXPECT_EQ(outer.run_and_wait_end(), -1);
}

TEST(fastflow_combination, ends_by_the_mark_of_any_of_its_nodes) {
    for (void* mark : {FF_GO_OUT, FF_EOS_NOFREEZE}) {
        for (const bool sends : {false, true}) {
            struct sending : ff_node_t<long> {
                long* svc(long* item) override { return ff_send_out(item), GO_ON; }
            } sender;
            passing plain;
            numbered first(100);
            ending_at middle(3, mark);
            passing behind;
            ff_comb front(sends ? static_cast<ff_node*>(&sender) : &plain, &middle);
            ff_comb comb(&front, &behind);
            ff_Pipe<> pipe(first, comb);
            EXPECT_EQ(pipe.run_and_wait_end(), 0);
            EXPECT_EQ(middle.seen, 3);
        }
    }
}

TEST(fastflow_node, with_several_inputs_turns_them_off_and_on) {
    struct gate : ff_minode_t<long> {
        int svc_init() override { return input_active(false), 0; }
        long* svc(long* item) override {
            if (item == nullptr && ++nulls == 5) input_active(true);
            if (item != nullptr) early += nulls < 5, ++items;
            return GO_ON;
        }
        int nulls = 0;
        int early = 0;
        int items = 0;
    } last;
    numbered first(10);
    ff_Pipe<> pipe(first, last);
    EXPECT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.nulls, 5);
    EXPECT_EQ(last.early, 0);
    EXPECT_EQ(last.items, 10);
}

TEST(fastflow_node, whose_thread_exits_ends_the_stream) {
    struct exiting : ff_node_t<long> {
        long* svc(long*) override { pthread_exit(nullptr); }
    } middle;
    numbered first(10);
    collecting last;
    ff_Pipe<> pipe(first, middle, last);
    EXPECT_EQ(pipe.run_and_wait_end(), -1);
    EXPECT_EQ(last.ends, 1);
}

TEST(fastflow_node, without_output_sends_nothing) {
    passing alone;
    long item = 1;
    EXPECT_FALSE(alone.ff_send_out(&item));
}

TEST(fastflow_parallel_for, takes_any_range_of_long) {
    constexpr long most = std::numeric_limits<long>::max();
    constexpr long least = std::numeric_limits<long>::min();
    ParallelFor loops(2);
    for (const long step : {1L, 3L}) {
        std::atomic<long> ran{0};
        std::atomic<long> outside{0};
        const auto count_it = [&](long i) {
            ++ran;
            if (i < most - 10 || (i - (most - 10)) % step != 0) ++outside;
        };
        loops.parallel_for(most - 10, most, step, 2, count_it);
        loops.parallel_for(most - 10, most, step, count_it);
        EXPECT_EQ(ran, 2 * ((10 + step - 1) / step));
        EXPECT_EQ(outside, 0);
    }
    std::atomic<long> ranges{0};
    loops.parallel_for_idx(least, most, 1, most / 2, [&](long from, long to, int) {
        EXPECT_LT(from, to);
        ++ranges;
    });
    EXPECT_EQ(ranges, 5);
}
