// Loops and graphs whose pool is destroyed, or served no more, before their work has begun.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/divide_and_conquer.hpp>
#include <amalgam/tasks/parallel_for.hpp>
#include <amalgam/tasks/parallel_reduce.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

/// A pool that is served, but out of which nothing runs.
class neglected_pool {
public:
    ~neglected_pool() { destroy(); }
    parallel_streams streams() { return {*pool_, 1}; }
    /// Once something waits in it.
    void destroy_full() {
        while (pool_->empty())
            std::this_thread::yield();
        destroy();
    }

private:
    class idler final : public scheduler {
    public:
        explicit idler(pool& served) : served_(&served) {}
        work_unit* next() noexcept override { return nullptr; }
        std::span<pool* const> pools() const noexcept override { return {&served_, 1}; }

    private:
        pool* served_;
    };
    void destroy() {
        if (!pool_) return;
        default_logger().set_sink([](const log_record&) {});  // it says what was left
        stream_->stop_within(std::chrono::nanoseconds(0));
        stream_.reset();
        pool_.reset();
        default_logger().set_sink({});
    }
    std::optional<shared_fifo_pool> pool_{std::in_place};
    std::optional<execution_stream> stream_{std::in_place, std::make_unique<idler>(*pool_),
                                            execution_stream_options{.driven = true}};
};

/// What a ULT of another stream, which takes no part itself, is told.
template <typename Call>
errc told_elsewhere(neglected_pool& pool, Call call) {
    execution_stream elsewhere;
    ult caller = spawn(elsewhere, call);
    pool.destroy_full();
    return code_of([&] { caller.join(); });
}

TEST(work_left_in_a_pool, is_no_loop_that_has_ended) {
    neglected_pool first, second;
    std::atomic<int> runs = 0;
    EXPECT_EQ(
        told_elsewhere(first, [&] { parallel_for(first.streams(), 0, 100, [&](int) { ++runs; }); }),
        errc::canceled);
    EXPECT_EQ(told_elsewhere(second,
                             [&] {
                                 parallel_reduce(
                                     second.streams(), 0, 100, 0, [](int, int& part) { ++part; },
                                     std::plus<>());
                             }),
              errc::canceled);
    EXPECT_EQ(runs, 0);
}

TEST(work_left_in_a_pool, is_no_result_of_divide_and_conquer) {
    neglected_pool pool;
    EXPECT_EQ(told_elsewhere(pool,
                             [&] {
                                 divide_and_conquer(
                                     pool.streams(), 10, [](int p) { return p < 2; },
                                     [](int) { return std::string("a result"); },
                                     [](int p) {
                                         return std::array{p - 1, p - 2};
                                     },
                                     [](std::vector<std::string>& parts) { return parts[0]; });
                             }),
              errc::canceled);
}

TEST(work_left_in_a_pool, is_done_by_a_caller_that_takes_part) {
    neglected_pool pool;
    std::atomic<int> runs = 0;
    std::thread caller([&] { parallel_for(pool.streams(), 0, 100, [&](int) { ++runs; }); });
    pool.destroy_full();
    caller.join();
    EXPECT_EQ(runs, 100);
}

TEST(work_left_in_a_pool, fails_a_graph_that_destroys_its_tasks) {
    const auto held = std::make_shared<int>(1);
    neglected_pool pool;
    task_graph graph(pool.streams());
    int value = 0;
    for (int i = 0; i < 5; ++i)
        graph.add({graph.inout(value)}, [&value, held] { ++value; });
    pool.destroy_full();
    EXPECT_EQ(code_of([&] { graph.wait(); }), errc::canceled);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(graph.size(), 0u);
    EXPECT_EQ(held.use_count(), 1);
}

// A task is added while another thread's add() is about to fail, and would count on its ULT.
TEST(work_left_in_a_pool, is_no_task_whose_graph_waits_for_ever) {
    for (int round = 0; round < 20; ++round) {
        shared_fifo_pool unserved;
        task_graph graph(parallel_streams(unserved, 1));
        std::atomic<int> ran = 0;
        const auto add_some = [&] {
            for (int i = 0; i < 100; ++i)
                code_of([&] { graph.add({}, [&] { ++ran; }); });
        };
        std::thread other(add_some);
        add_some();
        other.join();
        const errc told = code_of([&] { graph.wait(); });
        EXPECT_TRUE(told == errc::ok || told == errc::invalid) << static_cast<int>(told);
        EXPECT_EQ(graph.size(), 0u);
        EXPECT_EQ(ran, 0);
    }
}

}  // namespace
}  // namespace amalgam
