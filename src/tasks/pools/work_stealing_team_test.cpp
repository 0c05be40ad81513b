#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/hash.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

#include "conformance/slow_build.hpp"

namespace amalgam {
namespace {

/// Irregular work with known results, on 1, 2 and 8 streams.
struct irregular_work : testing::TestWithParam<std::size_t> {
    work_stealing_team team{GetParam()};

    template <typename Body>
    long run(Body&& body) {
        long answer = 0;
        spawn(team.main_pool(), [&] { answer = body(); }).join();
        return answer;
    }
};

long fibonacci(int n) {
    if (n < 2) return n;
    long left = 0;
    ult other = spawn([&] { left = fibonacci(n - 1); });
    const long right = fibonacci(n - 2);
    other.join();
    return left + right;
}

TEST_P(irregular_work, steals_are_counted_by_who_steals) {
    std::atomic<std::size_t> arrived = 0;
    run([&] {  // Each stream runs one of those, which wait for all.
        std::vector<ult> all;
        for (std::size_t i = 1; i < team.size(); ++i)
            all.push_back(spawn([&] {
                ++arrived;
                while (arrived < team.size()) {
                }
            }));
        ++arrived;
        while (arrived < team.size()) {
        }
        for (ult& each : all)
            each.join();
        return 0L;
    });
    std::uint64_t steals = 0;
    for (std::size_t i = 0; i < team.size(); ++i)
        steals += activity_of(team.stream(i)).steals;
    EXPECT_GE(steals, team.size() - 1);
    if (team.size() == 1) {
        EXPECT_EQ(steals, 0u);
    }
}

TEST_P(irregular_work, recursive_fibonacci) {
    const int n = conformance::slow_build ? 13 : 20;
    EXPECT_EQ(run([&] { return fibonacci(n); }), conformance::slow_build ? 233 : 6765);
}

/// Queens on `size` columns; taken columns and diagonals as bits. One ULT per position in the first
/// `forked` rows.
long queens(unsigned size, unsigned columns, unsigned left, unsigned right, int forked) {
    const unsigned all = (1u << size) - 1;
    if (columns == all) return 1;
    long found = 0;
    std::atomic<long> found_by_others = 0;
    std::vector<ult> others;
    for (unsigned free = all & ~(columns | left | right); free != 0; free &= free - 1) {
        const unsigned place = free & -free;
        const auto deeper = [=] {
            return queens(size, columns | place, (left | place) << 1, (right | place) >> 1,
                          forked - 1);
        };
        if (forked > 0) {
            others.push_back(spawn([&found_by_others, deeper] { found_by_others += deeper(); }));
        } else {
            found += deeper();
        }
    }
    for (auto& each : others)
        each.join();
    return found + found_by_others;
}

TEST_P(irregular_work, n_queens) {
    EXPECT_EQ(run([] { return queens(8, 0, 0, 0, conformance::slow_build ? 2 : 4); }), 92);
}

/// A tree whose nodes have zero to six children, depending on a hash of their name: where the work
/// is cannot be predicted.
std::size_t children_of(std::uint64_t node, int depth) {
    return depth > 12 ? 0 : mix(node) % 16 < 6 ? mix(node) % 7 : depth < 4 ? 4 : 0;
}

long count_alone(std::uint64_t node, int depth) {
    long nodes = 1;
    for (std::size_t i = 0; i < children_of(node, depth); ++i)
        nodes += count_alone(mix(node + i), depth + 1);
    return nodes;
}

long count_together(std::uint64_t node, int depth) {
    const std::size_t children = children_of(node, depth);
    std::vector<long> nodes(children);
    std::vector<ult> searching;
    for (std::size_t i = 0; i < children; ++i) {
        searching.push_back(spawn(
            [&nodes, node, depth, i] { nodes[i] = count_together(mix(node + i), depth + 1); }));
    }
    long sum = 1;
    for (std::size_t i = 0; i < children; ++i) {
        searching[i].join();
        sum += nodes[i];
    }
    return sum;
}

TEST_P(irregular_work, unbalanced_tree_search) {
    const long nodes = count_alone(7, 0);
    ASSERT_GT(nodes, 500);
    EXPECT_EQ(run([] { return count_together(7, 0); }), nodes);
}

INSTANTIATE_TEST_SUITE_P(streams, irregular_work, testing::Values(1, 2, 8));

TEST(work_stealing_team, gives_idle_streams_what_a_busy_one_made) {
    work_stealing_team team(2);
    // Each of the two needs the other, so one of them must have been stolen.
    spawn(team.main_pool(), [&] {
        std::atomic<int> here = 0;
        const auto meet = [&] {
            ++here;
            while (here < 2)
                continue;
        };
        ult one = spawn(meet), other = spawn(meet);
    }).join();
}

TEST(work_stealing_team, names_and_counts_its_streams) {
    work_stealing_team team(3, {.name = "team"});
    EXPECT_EQ(team.size(), 3u);
    EXPECT_EQ(team.stream(2).name(), "team-2");
    EXPECT_THROW(work_stealing_team(0), error);
    team.stop();
    EXPECT_THROW(spawn(team.main_pool(), [] {}), error);
}

}  // namespace
}  // namespace amalgam
