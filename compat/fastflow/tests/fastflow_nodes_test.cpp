// Single nodes and queues of FastFlow's interface, each compared with a plain loop.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

#include <ff/staticallocator.hpp>
#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

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

TEST(fastflow_queue, that_grows_has_no_size_until_it_is_fixed) {
    ff_buffernode queue(2, false);
    EXPECT_EQ(queue.get_in_buffer()->buffersize(), static_cast<size_t>(-1));
    size_t former = 0;
    EXPECT_TRUE(queue.change_inputqueuesize(1, former));
    EXPECT_EQ(former, 2U);
    EXPECT_EQ(queue.get_in_buffer()->buffersize(), 1U);
}

namespace {

struct counted_alive {
    long number = 0;
    long live = ++alive;
    ~counted_alive() { --alive; }
    static inline std::atomic<long> alive{0};
};

}  // namespace

TEST(fastflow_static_allocator, gives_each_slot_to_one_item_at_a_time) {
    struct making : ff_monode_t<counted_alive> {
        int svc_init() override { return slots.init(); }
        counted_alive* svc(counted_alive*) override {
            for (long i = 1; i <= count; ++i) {
                const int to = static_cast<int>(i % 2);
                counted_alive* made = nullptr;
                slots.alloc(made, to);
                made->number = i;
                ff_send_out_to(made, to);
            }
            return EOS;
        }
        StaticAllocator slots{6, sizeof(counted_alive), 2};
    } first;
    struct taking : ff_minode_t<counted_alive> {
        counted_alive* svc(counted_alive* item) override {
            sum += item->number;
            most = std::max(most, counted_alive::alive.load());
            StaticAllocator::dealloc(item);
            return GO_ON;
        }
        long sum = 0;
        long most = 0;
    } last;
    struct passing : ff_node_t<counted_alive> {
        counted_alive* svc(counted_alive* item) override { return item; }
    } a, b;
    for (int run = 1; run <= 2; ++run) {
        ff_farm farm;
        farm.add_emitter(&first);
        farm.add_workers({&a, &b});
        farm.add_collector(&last);
        ASSERT_EQ(farm.run_and_wait_end(), 0);
        EXPECT_EQ(last.sum, run * sum_of_all);
    }
    EXPECT_LE(last.most, 6);
    EXPECT_EQ(counted_alive::alive, 0);
}

TEST(fastflow_static_allocator, refuses_what_does_not_fit) {
    long* item = nullptr;
    StaticAllocator slots(1, sizeof(long));
    EXPECT_THROW(slots.alloc(item), std::logic_error);
    ASSERT_EQ(slots.init(), 0);
    EXPECT_THROW(slots.alloc(item, 1), std::logic_error);
    EXPECT_THROW(slots.alloc(item, -1), std::logic_error);
    std::string* larger = nullptr;
    EXPECT_THROW(slots.alloc(larger), std::logic_error);
    slots.alloc(item);
    EXPECT_EQ(*item, 0);
    double* other = nullptr;
    slots.realloc(item, other);
    EXPECT_EQ(static_cast<void*>(other), static_cast<void*>(item));
    StaticAllocator::dealloc(other);
    slots.alloc(item);
    StaticAllocator::dealloc(item);
    EXPECT_EQ(StaticAllocator(0, 8).init(), -1);
    EXPECT_EQ(StaticAllocator(8, 0).init(), -1);
    EXPECT_EQ(StaticAllocator(8, 8, 0).init(), -1);
    EXPECT_EQ(StaticAllocator(1, static_cast<size_t>(-8)).init(), -1);
}
