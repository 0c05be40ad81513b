// The first, second, third allocation of the caller fails, until what it does succeeds.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <new>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/divide_and_conquer.hpp>
#include <amalgam/tasks/parallel_for.hpp>
#include <amalgam/tasks/parallel_reduce.hpp>
#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

/// Calls `act` until no allocation of its failed; true if it ended well each time that it did not
/// throw for want of memory. `bound`: it never needs more allocations than that.
template <typename Act>
void fail_each_allocation(int bound, Act act) {
    if (detail::sanitized) GTEST_SKIP() << "allocations fail in plain builds";
    for (int n = 1;; ++n) {
        ASSERT_LE(n, bound);
        const memory::failing failing(static_cast<std::uint64_t>(n));
        try {
            act();
        } catch (const std::bad_alloc&) {
            continue;
        } catch (const error& thrown) {
            ASSERT_EQ(thrown.code(), errc::no_memory) << thrown.what();
            continue;
        }
        if (!memory::failing::struck()) return;
    }
}

TEST(parallel_without_memory, a_loop_runs_all_iterations_or_throws) {
    work_stealing_team team(2);
    fail_each_allocation(100, [&] {
        std::atomic<int> runs = 0;
        parallel_for(team, 0, 1000, [&](int) { ++runs; }, {.how = partition::dynamic});
        EXPECT_EQ(runs, 1000);
    });
    fail_each_allocation(100, [&] {
        const int sum = parallel_reduce(
            team, 0, 1000, 0, [](int, int& part) { ++part; }, std::plus<>());
        EXPECT_EQ(sum, 1000);
    });
}

TEST(parallel_without_memory, a_task_is_added_or_not_and_the_others_keep_their_order) {
    work_stealing_team team(2);
    task_graph graph(team);
    std::array<int, 3> data{};
    std::array<int, 3> expected{};
    const auto body_of_one = std::make_shared<int>(1);
    for (int i = 0; i < 200; ++i) {
        int &from = data[static_cast<std::size_t>(i % 3)],
            &to = data[static_cast<std::size_t>(i * 7 / 3 % 3)];
        fail_each_allocation(100, [&] {
            graph.add({graph.in(from), graph.inout(to)},
                      [&from, &to, body_of_one] { to = (to * 3 + from + 1) % 1009; });
            const memory::spared mine;
            int& expected_to = expected[static_cast<std::size_t>(&to - data.data())];
            expected_to =
                (expected_to * 3 + expected[static_cast<std::size_t>(&from - data.data())] + 1) %
                1009;
        });
    }
    graph.wait();
    EXPECT_EQ(data, expected);
    EXPECT_EQ(body_of_one.use_count(), 1);
}

TEST(parallel_without_memory, divide_and_conquer_has_its_result_or_throws) {
    work_stealing_team team(2);
    fail_each_allocation(5000, [&] {
        const int found = divide_and_conquer(
            team, 10, [](int p) { return p < 2; }, [](int p) { return p; },
            [](int p) {
                return std::array{p - 1, p - 2};
            },
            [](const std::vector<int>& parts) { return parts[0] + parts[1]; });
        EXPECT_EQ(found, 55);
    });
}

}  // namespace
}  // namespace amalgam
