// Marks, settings, times and memory of FastFlow's interface: what they do, and that those without
// effect here change no result.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <ff/allocator.hpp>
#include <ff/distributed/printer.hpp>
#include <gtest/gtest.h>
#include <sched.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

TEST(fastflow_marks, eosw_ends_the_workers_and_leaves_the_end_to_the_collector) {
    struct emitting : ff_node_t<long> {
        long* svc(long* item) override {
            if (*item != 101) return item;
            delete item;
            return EOSW;
        }
    } emitter;
    struct working : twice {
        void eosnotify(ssize_t) override { ++ends; }
        void svc_end() override { ++*ended; }
        std::atomic<int>* ended = nullptr;
        int ends = 0;
    } left, right;
    struct collecting : ff_minode_t<long> {
        long* svc(long* item) override { return item; }
        void eosnotify(ssize_t) override {
            if (++ends == 2) ff_send_out(EOS);
        }
        int ends = 0;
    } collector;
    std::atomic<int> ended{0};
    left.ended = right.ended = &ended;
    source first(101);
    sink last;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    farm.add_collector(&collector);
    ff_Pipe<> pipe(first, farm, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(left.ends + right.ends, 2);
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(collector.ends, 2);
    EXPECT_EQ(last.sum(), 2 * 100 * 101 / 2);
    EXPECT_EQ(last.ends, 1);
}

TEST(fastflow_marks, blk_and_nblk_are_no_items) {
    struct switching : ff_node_t<long> {
        long* svc(long* item) override {
            ff_send_out(*item % 2 == 0 ? BLK : NBLK);
            return item;
        }
    } middle;
    struct farm_switching : ff_monode_t<long> {
        long* svc(long* item) override {
            broadcast_task(*item % 2 == 0 ? BLK : NBLK);
            return item;
        }
    } emitter;
    source first;
    twice left, right;
    many_sink last;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    ff_Pipe<> pipe(first, middle, farm, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.got.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(last.sum(), 2 * sum_of_all);
}

TEST(fastflow_settings, of_threads_change_no_result) {
    for (const bool blocking : {true, false}) {
        source first;
        twice middle;
        sink last;
        middle.setAffinity(0);
        EXPECT_EQ(middle.getCPUId(), 0);
        ff_Farm<long> farm(some<twice>(2));
        farm.no_mapping();
        ff_Pipe<> pipe(first, middle, farm, last);
        pipe.blocking_mode(blocking);
        pipe.no_mapping();
        pipe.no_barrier();
        ASSERT_EQ(pipe.run_and_wait_end(), 0);
        EXPECT_EQ(last.sum(), 4 * sum_of_all);
    }
}

TEST(fastflow_settings, affinity_of_a_node_is_that_of_its_thread) {
    struct asking : ff_node_t<long> {
        int svc_init() override {
            CPU_ZERO(&processors);
            return sched_getaffinity(0, sizeof processors, &processors);
        }
        long* svc(long* item) override { return item; }
        int only() const {
            for (int each = 0; each != CPU_SETSIZE; ++each)
                if (CPU_COUNT(&processors) == 1 && CPU_ISSET(each, &processors)) return each;
            return -1;
        }
        cpu_set_t processors;
    } middle, free;
    source first(1);
    sink last;
    ff_Pipe<> pipe(first, middle, free, last);
    cpu_set_t here;
    CPU_ZERO(&here);
    ASSERT_EQ(sched_getaffinity(0, sizeof here, &here), 0);
    for (int each = 0; each != CPU_SETSIZE; ++each) {
        if (!CPU_ISSET(each, &here)) continue;
        middle.setAffinity(each);
        ASSERT_EQ(pipe.run_and_wait_end(), 0);
        EXPECT_EQ(middle.only(), each);
        EXPECT_TRUE(CPU_EQUAL(&free.processors, &here));
    }
}

TEST(fastflow_settings, affinity_that_nobody_can_have_is_told) {
    source first(1);
    twice middle;
    sink last;
    ff_Pipe<> pipe(first, middle, last);
    middle.setAffinity(CPU_SETSIZE);
    testing::internal::CaptureStderr();
    pipe.setAffinity(0);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("setAffinity: a pipeline"), std::string::npos);
    EXPECT_NE(said.find("cannot have processor 1024"), std::string::npos);
    EXPECT_EQ(last.sum(), 2);
}

TEST(fastflow_settings, time_of_work_lies_within_the_time_of_threads) {
    source first;
    sink last;
    ff_Pipe<> pipe(first, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_GE(pipe.ffwTime(), 0);
    EXPECT_GE(pipe.ffTime(), pipe.ffwTime());
}

TEST(fastflow_settings, svc_end_comes_once_after_the_last_item) {
    struct all_calls : ff_node_t<long> {
        int svc_init() override {
            calls += "i";
            return 0;
        }
        long* svc(long* item) override {
            delete item;
            if (calls.back() != 's') calls += "s";
            return GO_ON;
        }
        void eosnotify(ssize_t) override { calls += "n"; }
        void svc_end() override { calls += "e"; }
        std::string calls;
    } last;
    source first;
    ff_Pipe<> pipe(first, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.calls, "isne");
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.calls, "isneisne");
}

TEST(fastflow_settings, a_function_is_a_node_by_its_name) {
    source first;
    ff_node_F<long> middle([](long* item, ff_node*) {
        *item += 3;
        return item;
    });
    sink last;
    ff_Pipe<> pipe(first, middle, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    EXPECT_EQ(last.sum(), sum_of_all + 3 * count);
}

TEST(fastflow_settings, endl_ends_a_line) {
    std::ostringstream text;
    text << "one" << ff::endl << "two" << ff::endl;
    EXPECT_EQ(text.str(), "one\ntwo\n");
    testing::internal::CaptureStdout();
    ff::cout << "three " << 3 << ff::endl;
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_NE(printed.find("three 3\n"), std::string::npos) << printed;
}

namespace {

/// As programs do that choose their allocator: macros over an object of theirs.
ff_allocator* allocator_of_program = nullptr;
#define MALLOC(size) (allocator_of_program->malloc(size))
#define FREE(memory) (allocator_of_program->free(memory))

struct piece_of_memory {
    std::size_t size;
    unsigned char filled_with;
};

}  // namespace

TEST(fastflow_allocator, memory_of_one_thread_is_freed_by_another) {
    struct allocating : ff_node_t<piece_of_memory> {
        int svc_init() override { return allocator_of_program->registerAllocator() < 0 ? -1 : 0; }
        piece_of_memory* svc(piece_of_memory*) override {
            for (std::size_t i = 0; i != 500; ++i) {
                const std::size_t size = sizeof(piece_of_memory) + i * 40 % 20000;
                auto* const made = static_cast<piece_of_memory*>(MALLOC(size));
                *made = {size, static_cast<unsigned char>(i)};
                std::memset(made + 1, made->filled_with, size - sizeof *made);
                ff_send_out(made);
            }
            return EOS;
        }
        void svc_end() override { allocator_of_program->deregisterAllocator(); }
    } first;
    struct freeing : ff_node_t<piece_of_memory> {
        int svc_init() override { return allocator_of_program->register4free() < 0 ? -1 : 0; }
        piece_of_memory* svc(piece_of_memory* got) override {
            const auto* const begin = reinterpret_cast<unsigned char*>(got + 1);
            const auto* const end = reinterpret_cast<unsigned char*>(got) + got->size;
            wrong += std::count(begin, end, got->filled_with) != end - begin;
            bytes += got->size;
            FREE(got);
            return GO_ON;
        }
        long wrong = 0;
        std::size_t bytes = 0;
    } last;
    ff_allocator mine;
    ASSERT_EQ(mine.init(), 0);
    allocator_of_program = &mine;
    ff_Pipe<> pipe(first, last);
    ASSERT_EQ(pipe.run_and_wait_end(), 0);
    std::size_t expected = 0;
    for (std::size_t i = 0; i != 500; ++i)
        expected += sizeof(piece_of_memory) + i * 40 % 20000;
    EXPECT_EQ(last.bytes, expected);
    EXPECT_EQ(last.wrong, 0);
}

TEST(fastflow_allocator, functions_give_grow_and_free_memory) {
    auto* text = static_cast<char*>(ff_malloc(8));
    ASSERT_NE(text, nullptr);
    std::memcpy(text, "seven..", 8);
    text = static_cast<char*>(ff_realloc(text, 100000));
    EXPECT_STREQ(text, "seven..");
    ff_free(text);

    auto* const other = FFAllocator::instance()->newAllocator();
    auto* numbers = static_cast<int*>(other->malloc(4 * sizeof(int)));
    for (int i = 0; i != 4; ++i)
        numbers[i] = i * i;
    numbers = static_cast<int*>(other->growsup(numbers, 4000 * sizeof(int)));
    numbers = static_cast<int*>(other->realloc(numbers, 4 * sizeof(int)));
    EXPECT_EQ(std::vector<int>(numbers, numbers + 4), (std::vector<int>{0, 1, 4, 9}));
    EXPECT_TRUE(other->free(numbers));
    void* aligned = nullptr;
    ASSERT_EQ(other->posix_memalign(&aligned, 256, 1000), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 256, 0U);
    other->free(aligned);
    ASSERT_EQ(ff_posix_memalign(&aligned, 128, 1000), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 128, 0U);
    ff_free(aligned);
    FFAllocator::instance()->deleteAllocator(other);
}

TEST(fastflow_allocator, knows_its_classes_of_sizes) {
    ff_allocator mine;
    EXPECT_EQ(mine.getslabs(1), 0);
    EXPECT_EQ(mine.getslabs(32), 0);
    EXPECT_EQ(mine.getslabs(33), 1);
    EXPECT_EQ(mine.getslabs(8192), 8);
    EXPECT_EQ(mine.getslabs(8193), -1);
}
#undef MALLOC
#undef FREE
