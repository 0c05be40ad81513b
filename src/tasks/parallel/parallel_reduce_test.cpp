#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/parallel_reduce.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace amalgam {
namespace {

constexpr partition all_partitions[] = {partition::automatic, partition::dynamic, partition::fixed};

TEST(parallel_reduce, adds_all_iterations) {
    for (const std::size_t streams : {1, 2, 5}) {
        work_stealing_team team(streams);
        for (const partition how : all_partitions) {
            for (const long count : {0L, 1L, 5L, 10000L}) {
                const long sum =
                    parallel_reduce(team, 0L, count, 0L, [](long i, long& part) { part += i; },
                                    std::plus<>(), {.how = how, .grain = 3});
                EXPECT_EQ(sum, count * (count - 1) / 2);
            }
        }
    }
}

TEST(parallel_reduce, parts_begin_as_the_identity_also_of_types_without_a_default_or_assignment) {
    struct longest {
        explicit longest(std::string start) : text(std::move(start)) {}
        const int limit = 500;
        std::string text;
    };
    work_stealing_team team(2);
    const longest found = parallel_reduce(
        team, 0, 500, longest(""),
        [](int i, longest& part) {
            if (std::string one(static_cast<std::size_t>(i % 100), 'x');
                one.size() > part.text.size())
                part.text = one;
        },
        [](longest a, longest b) { return a.text.size() < b.text.size() ? b : a; });
    EXPECT_EQ(found.text.size(), 99u);
}

TEST(parallel_reduce, fixed_parts_give_the_same_sum_of_floating_point_numbers_in_each_run) {
    work_stealing_team team(3);
    const auto sum = [&] {
        return parallel_reduce(team, 1, 10001, 0.0, [](int i, double& part) { part += 1.0 / i; },
                               std::plus<>(), {.how = partition::fixed, .tasks = 7});
    };
    const double first = sum();
    for (int rounds = 0; rounds < 20; ++rounds)
        EXPECT_EQ(sum(), first);
    spawn(team.main_pool(), [&] { EXPECT_EQ(sum(), first); }).join();
}

TEST(parallel_reduce, joins_fixed_parts_in_order) {
    work_stealing_team team(3);
    using list = std::vector<int>;
    const list all = parallel_reduce(
        team, 0, 100, list{}, [](int i, list& part) { part.push_back(i); },
        [](list a, const list& b) {
            a.insert(a.end(), b.begin(), b.end());
            return a;
        },
        {.how = partition::fixed, .tasks = 8});
    ASSERT_EQ(all.size(), 100u);
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

TEST(parallel_reduce, throws_what_the_body_and_join_throw) {
    work_stealing_team team(2);
    const auto fails = [](int, int&) { throw std::runtime_error("body"); };
    EXPECT_THROW(parallel_reduce(team, 0, 10, 0, fails, std::plus<>()), std::runtime_error);
    const auto join = [](int, int) -> int { throw std::logic_error("join"); };
    EXPECT_THROW(parallel_reduce(team, 0, 10, 0, [](int, int&) {}, join,
                                 {.how = partition::fixed, .tasks = 2}),
                 std::logic_error);
}

}  // namespace
}  // namespace amalgam
