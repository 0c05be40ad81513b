// Tasks whose start fails for lack of memory, and the start after that: each allocation fails once.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <ff/mdf.hpp>
#include <ff/taskf.hpp>
#include <gtest/gtest.h>

#include "memory/memory.hpp"

namespace ff::task_memory_tests {
namespace {

/// `start()` with the first, the second, ... allocation failing, until none does. `check(result)`
/// follows each.
template <typename Start, typename Check>
void fail_each_allocation_of(Start start, Check check) {
    bool struck = true;
    std::uint64_t n = 1;
    for (; struck; ++n) {
        int result = 0;
        {
            const amalgam::memory::failing one(n);
            result = start();
            struck = amalgam::memory::failing::struck();
        }
        check(result);
        ASSERT_FALSE(testing::Test::HasFailure()) << "where allocation " << n << " fails";
    }
    EXPECT_GT(n, 2u) << "no allocation was counted";
}

TEST(fastflow_task_memory, kept_tasks_run_once_after_a_start_that_failed) {
    std::unique_ptr<ff_taskf> tasks;
    std::atomic<int> calls = 0;
    fail_each_allocation_of(
        [&] {
            {
                const amalgam::memory::spared ours;
                calls = 0;
                tasks = std::make_unique<ff_taskf>(2);
                for (int i = 0; i < 3; ++i)
                    tasks->AddTask([&calls] { ++calls; });
            }
            return tasks->run();
        },
        [&](int started) {
            if (started != 0) {
                EXPECT_EQ(tasks->run(), 0);
            }
            EXPECT_EQ(tasks->wait(), 0);
            EXPECT_EQ(calls, 3);
        });
}

TEST(fastflow_task_memory, a_start_with_more_threads_that_fails_is_no_start) {
    std::unique_ptr<ff_taskf> tasks;
    fail_each_allocation_of(
        [&] {
            {
                const amalgam::memory::spared ours;
                tasks = std::make_unique<ff_taskf>(2);
                EXPECT_EQ(tasks->run(), 0);
            }
            return tasks->run_then_freeze(3);
        },
        [&](int) {
            std::atomic<int> calls = 0;
            EXPECT_EQ(tasks->wait(), 0);
            EXPECT_EQ(tasks->run(), 0);
            tasks->AddTask([&calls] { ++calls; });
            EXPECT_EQ(tasks->wait(), 0);
            EXPECT_EQ(calls, 1);
        });
}

TEST(fastflow_task_memory, a_kept_task_is_no_less_for_an_attempt_to_add_it) {
    long sum = 0;
    const auto add_none = +[](long*) {};
    std::unique_ptr<ff_mdf> graph;
    fail_each_allocation_of(
        [&] {
            {
                const amalgam::memory::spared ours;
                sum = 0;
                graph = std::make_unique<ff_mdf>(add_none, &sum, 16, 2);
                std::vector<param_info> uses{{reinterpret_cast<uintptr_t>(&sum), OUTPUT}};
                for (int i = 0; i < 3; ++i)
                    graph->AddTask(
                        uses, [](long* to) { ++*to; }, &sum);
            }
            return graph->run_and_wait_end();
        },
        [&](int result) {
            if (result != 0) {
                EXPECT_EQ(graph->run_and_wait_end(), 0);
            }
            EXPECT_EQ(sum, 3);
        });
}

TEST(fastflow_task_memory, a_data_flow_runs_after_a_start_that_failed) {
    struct flow {
        ff_mdf* graph = nullptr;
        long sum = 0;
    } data;
    const auto add_tasks = +[](flow* const all) {
        const amalgam::memory::spared ours;
        const auto sum = reinterpret_cast<uintptr_t>(&all->sum);
        std::vector<param_info> uses{{sum, INPUT}, {sum, OUTPUT}};
        for (int i = 0; i < 3; ++i)
            all->graph->AddTask(
                uses, [](long* to) { ++*to; }, &all->sum);
    };
    std::unique_ptr<ff_mdf> graph;
    fail_each_allocation_of(
        [&] {
            {
                const amalgam::memory::spared ours;
                graph = std::make_unique<ff_mdf>(add_tasks, &data, 16, 2);
                data = {graph.get(), 0};
            }
            return graph->run_and_wait_end();
        },
        [&](int result) {
            if (result != 0) {
                EXPECT_EQ(data.sum, 0);
                EXPECT_EQ(graph->run_and_wait_end(), 0);
            }
            EXPECT_EQ(data.sum, 3);
        });
}

}  // namespace
}  // namespace ff::task_memory_tests
