#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/divide_and_conquer.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

long fibonacci_on(const parallel_streams& on, int n) {
    return divide_and_conquer(
        on, n, [](int p) { return p < 2; }, [](int p) { return static_cast<long>(p); },
        [](int p) {
            return std::array{p - 1, p - 2};
        },
        [](const std::vector<long>& found) { return found[0] + found[1]; });
}

TEST(divide_and_conquer, solves_from_a_thread_a_ult_of_the_team_and_one_of_another_stream) {
    for (const std::size_t streams : {1, 2, 5}) {
        work_stealing_team team(streams);
        execution_stream elsewhere;
        EXPECT_EQ(fibonacci_on(team, 15), 610);
        spawn(team.main_pool(), [&] { EXPECT_EQ(fibonacci_on(team, 15), 610); }).join();
        spawn(elsewhere, [&] { EXPECT_EQ(fibonacci_on(team, 15), 610); }).join();
        EXPECT_EQ(fibonacci_on(team, 1), 1);
    }
}

TEST(divide_and_conquer, sorts_in_place) {
    std::vector<int> numbers(100000);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(3));
    work_stealing_team team(2);
    divide_and_conquer(
        team, std::span(numbers), [](std::span<const int> part) { return part.size() < 5000; },
        [](std::span<int> part) {
            std::sort(part.begin(), part.end());
            return part;
        },
        [](std::span<int> part) {
            const auto half = part.size() / 2;
            return std::array{part.first(half), part.subspan(half)};
        },
        [](std::vector<std::span<int>>& halves) {
            std::span<int> whole(halves[0].data(), halves[0].size() + halves[1].size());
            std::inplace_merge(whole.begin(), halves[1].begin(), whole.end());
            return whole;
        });
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
}

TEST(divide_and_conquer, results_come_in_the_order_of_the_parts) {
    work_stealing_team team(3);
    const std::string all = divide_and_conquer(
        team, std::string("a list of letters"), [](const std::string& p) { return p.size() == 1; },
        [](const std::string& p) { return p; },
        [](const std::string& p) {
            std::vector<std::string> letters;
            for (const char each : p)
                letters.emplace_back(1, each);
            return letters;
        },
        [](const std::vector<std::string>& parts) {
            return std::accumulate(parts.begin(), parts.end(), std::string());
        });
    EXPECT_EQ(all, "a list of letters");
}

TEST(divide_and_conquer, combine_may_see_the_problem_also_of_no_parts) {
    work_stealing_team team(2);
    const int sum = divide_and_conquer(
        team, 5, [](int) { return false; }, [](int) { return 0; },
        [](int p) { return std::vector<int>(static_cast<std::size_t>(p), p - 1); },
        [](int p, const std::vector<int>& found) {
            return std::accumulate(found.begin(), found.end(), p);
        });
    EXPECT_EQ(sum, 5 + 5 * (4 + 4 * (3 + 3 * (2 + 2 * 1))));
}

TEST(divide_and_conquer, takes_member_functions_of_the_problem) {
    struct problem {
        int n;
        bool is_small() const { return n < 2; }
        int solve() { return n; }
        std::array<problem, 2> split() { return {problem{n - 1}, problem{n - 2}}; }
        int combine(const std::vector<int>& parts) { return parts[0] + parts[1]; }
    };
    work_stealing_team team(2);
    EXPECT_EQ(divide_and_conquer(team, problem{10}, &problem::is_small, &problem::solve,
                                 &problem::split, &problem::combine),
              55);
}

TEST(divide_and_conquer, a_branch_that_waits_does_not_stop_the_others) {
    work_stealing_team team(1);
    event other_ran;
    const auto solve = [&](int part) {
        if (part == 1) {
            other_ran.wait();
        } else {
            other_ran.set();
        }
        return part;
    };
    const auto both = [&] {
        return divide_and_conquer(
            team, 0, [](int p) { return p != 0; }, solve,
            [](int) {
                return std::array{1, 2};
            },
            [](const std::vector<int>& found) { return found[0] + found[1]; });
    };
    spawn(team.main_pool(), [&] { EXPECT_EQ(both(), 3); }).join();
}

TEST(divide_and_conquer, throws_the_first_exception_and_begins_no_further_branch) {
    for (const std::size_t streams : {1, 2, 5}) {
        work_stealing_team team(streams);
        std::atomic<int> solved = 0;
        const auto run = [&] {
            divide_and_conquer(
                team, 30, [](int p) { return p < 2; },
                [&](int) -> int {
                    ++solved;
                    throw std::runtime_error("leaf");
                },
                [](int p) {
                    return std::array{p - 1, p - 2};
                },
                [](const std::vector<int>& found) { return found[0] + found[1]; });
        };
        EXPECT_THROW(run(), std::runtime_error);
        EXPECT_LE(solved, static_cast<int>(streams) + 1);
    }
}

TEST(divide_and_conquer, refuses_where_nobody_can_wait) {
    work_stealing_team team(1);
    spawn_tasklet(team.main_pool(), [&] { EXPECT_THROW(fibonacci_on(team, 10), error); }).join();
    spawn(team.main_pool(), [&] {
        const auto exits = [](int) -> int { this_task::exit(); };
        EXPECT_THROW(divide_and_conquer(
                         team, 5, [](int p) { return p < 2; }, exits,
                         [](int p) {
                             return std::array{p - 1, p - 2};
                         },
                         [](const std::vector<int>&) { return 0; }),
                     error);
    }).join();
}

TEST(divide_and_conquer, ends_when_its_caller_is_canceled) {
    work_stealing_team team(2);
    execution_stream elsewhere;
    event begun, may_end;
    ult caller = spawn(elsewhere, [&] {
        divide_and_conquer(
            team, 20, [](int p) { return p < 2; },
            [&](int) {
                begun.set();
                may_end.wait();
                return 1;
            },
            [](int p) {
                return std::array{p - 1, p - 2};
            },
            [](const std::vector<int>& found) { return found[0] + found[1]; });
    });
    begun.wait();
    spawn(elsewhere, [] {}).join();
    caller.cancel();
    spawn(elsewhere, [] {}).join();
    may_end.set();
    EXPECT_EQ(code_of([&] { caller.join(); }), errc::canceled);
}

}  // namespace
}  // namespace amalgam
