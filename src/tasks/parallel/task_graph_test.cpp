#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace amalgam {
namespace {

/// What std::hash would not: depends on the order of both.
unsigned long mixed(unsigned long a, unsigned long b) {
    return (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 31;
}

/// A task that is right only after those before it: writes one datum from two others.
struct step {
    std::size_t from, other, to;
};

std::vector<step> random_steps(std::size_t count, std::size_t data) {
    std::mt19937 random(7);
    std::uniform_int_distribution<std::size_t> any(0, data - 1);
    std::vector<step> steps(count);
    for (step& each : steps)
        each = {any(random), any(random), any(random)};
    return steps;
}

TEST(task_graph, computes_what_the_tasks_in_a_row_compute) {
    using values = std::array<unsigned long, 13>;
    const std::vector<step> steps = random_steps(5000, values{}.size());
    values expected{};
    for (const step& each : steps)
        expected[each.to] =
            mixed(expected[each.to], mixed(expected[each.from], expected[each.other]));
    for (const std::size_t streams : {1, 2, 5}) {
        for (const std::size_t bound : {1, 7, 5000}) {
            work_stealing_team team(streams);
            values data{};
            task_graph graph(team, {.most_tasks = bound});
            for (const step& each : steps) {
                auto &from = data[each.from], &other = data[each.other], &to = data[each.to];
                graph.add({graph.in(from), graph.in(other), graph.inout(to)}, [&from, &other, &to] {
                    const unsigned long sum = mixed(from, other);
                    if (sum % 16 == 0) this_task::yield();
                    to = mixed(to, sum);
                });
                EXPECT_LE(graph.size(), bound);
            }
            graph.wait();
            EXPECT_EQ(data, expected);
            EXPECT_EQ(graph.size(), 0u);
        }
    }
}

TEST(task_graph, readers_run_beside_each_other_and_a_writer_after_them) {
    work_stealing_team team(1);
    task_graph graph(team);
    int value = 0;
    std::atomic<int> readers = 0;
    event both_read;
    graph.add({graph.out(value)}, [&] { value = 5; });
    for (int i = 0; i < 2; ++i) {
        graph.add({graph.in(value)}, [&] {
            EXPECT_EQ(value, 5);
            if (++readers == 2) both_read.set();
            both_read.wait();  // each needs the other
        });
    }
    graph.add({graph.out(value)}, [&] { value = readers; });
    graph.wait();
    EXPECT_EQ(value, 2);
}

TEST(task_graph, tasks_that_share_nothing_wait_for_nothing) {
    work_stealing_team team(1);
    task_graph graph(team);
    int a = 0, b = 0;
    event other_ran;
    graph.add({graph.inout(a)}, [&] { other_ran.wait(); });
    graph.add({graph.inout(b)}, [&] { other_ran.set(); });
    graph.wait();
}

TEST(task_graph, takes_data_that_is_named_twice_and_none) {
    work_stealing_team team(2);
    task_graph graph(team);
    int a = 0;
    for (int i = 0; i < 100; ++i) {
        graph.add({graph.in(a), graph.in(a), graph.out(a), graph.in(a)}, [&] { ++a; });
        graph.add({graph.out(a), graph.out(a)}, [&] { ++a; });
    }
    std::atomic<int> ran = 0;
    graph.add({}, [&] { ++ran; });
    graph.wait();
    EXPECT_EQ(a, 200);
    EXPECT_EQ(ran, 1);
}

TEST(task_graph, a_task_adds_others_also_when_the_graph_is_full) {
    work_stealing_team team(2);
    task_graph graph(team, {.most_tasks = 1});
    std::atomic<int> ran = 0;
    for (int i = 0; i < 10; ++i) {
        graph.add({}, [&] {
            for (int n = 0; n < 10; ++n)
                graph.add({}, [&] { ++ran; });
        });
    }
    graph.wait();
    EXPECT_EQ(ran, 100);
}

TEST(task_graph, throws_the_first_exception_leaves_out_the_rest_and_goes_on) {
    work_stealing_team team(2);
    task_graph graph(team);
    int value = 0;
    bool ran = false;
    graph.add({graph.out(value)}, [] { throw std::runtime_error("first"); });
    graph.add({graph.inout(value)}, [&] { ran = true; });
    try {
        graph.wait();
        FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& thrown) {
        EXPECT_STREQ(thrown.what(), "first");
    }
    EXPECT_FALSE(ran);
    graph.add({graph.inout(value)}, [&] { ran = true; });
    graph.wait();
    EXPECT_TRUE(ran);
}

TEST(task_graph, leaves_out_what_has_not_begun_when_it_is_canceled) {
    work_stealing_team team(1);
    task_graph graph(team);
    int value = 0;
    event begun, may_end;
    bool ran = false;
    const auto held = std::make_shared<int>(1);
    graph.add({graph.out(value)}, [&] {
        begun.set();
        may_end.wait();
    });
    graph.add({graph.inout(value)}, [&ran, held] { ran = true; });
    begun.wait();
    graph.cancel();
    may_end.set();
    try {
        graph.wait();
        FAIL() << "nothing was thrown";
    } catch (const error& thrown) {
        EXPECT_EQ(thrown.code(), errc::canceled);
    }
    EXPECT_FALSE(ran);
    EXPECT_EQ(held.use_count(), 1) << "what a left out task has captured is destroyed";
}

TEST(task_graph, refuses_what_would_wait_for_ever) {
    work_stealing_team team(1);
    EXPECT_THROW(task_graph(team, {.most_tasks = 0}), error);
    task_graph graph(team);
    std::string refused;
    graph.add({}, [&] {
        try {
            graph.wait();
        } catch (const error& thrown) {
            refused = thrown.what();
        }
    });
    graph.wait();
    EXPECT_NE(refused.find("its own graph"), std::string::npos) << refused;

    spawn_tasklet(team.main_pool(), [&] { EXPECT_THROW(graph.add({}, [] {}), error); }).join();
    graph.add({}, [] { this_task::exit(); });
    EXPECT_THROW(graph.wait(), error);

    team.stop();
    const auto held = std::make_shared<int>(1);
    EXPECT_THROW(graph.add({}, [held] {}), error);
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_EQ(graph.size(), 0u);
    graph.wait();
}

TEST(task_graph, destructor_waits_and_logs_what_nobody_has_seen) {
    std::string told;
    default_logger().set_sink([&](const log_record& line) { told += to_text(line); });
    work_stealing_team team(2);
    int value = 0;
    {
        task_graph graph(team);
        for (int i = 0; i < 100; ++i)
            graph.add({graph.inout(value)}, [&] { ++value; });
    }
    EXPECT_EQ(value, 100);
    {
        task_graph graph(team);
        graph.add({}, [] {});
        graph.cancel();  // which whoever did it knows
    }
    EXPECT_EQ(told, "");
    {
        task_graph graph(team);
        graph.add({}, [] { throw std::runtime_error("unseen"); });
    }
    default_logger().set_sink({});
    EXPECT_NE(told.find("unseen"), std::string::npos) << told;
}

TEST(task_graph, a_body_of_any_alignment_and_size_fits) {
    struct alignas(256) large {
        std::array<char, 5000> bytes{};
    };
    work_stealing_team team(2);
    task_graph graph(team);
    std::atomic<bool> aligned = false;
    graph.add({}, [&aligned, one = large{}] {
        aligned = reinterpret_cast<std::uintptr_t>(&one) % 256 == 0;
    });
    graph.wait();
    EXPECT_TRUE(aligned);
}

TEST(task_graph, tasks_have_stacks_of_the_size_that_was_asked_for) {
    work_stealing_team team(1);
    task_graph graph(team, {.stack_bytes = 4u << 20});
    long sum = 0;
    graph.add({}, [&] {
        std::array<char, 2u << 20> large{};
        for (std::size_t i = 0; i < large.size(); i += 4096)
            static_cast<volatile char&>(large[i]) = 1;
        for (const char each : large)
            sum += each;
    });
    graph.wait();
    EXPECT_EQ(sum, 512);

    task_graph tiny(team, {.stack_bytes = 100});
    EXPECT_THROW(tiny.add({}, [] {}), error);
    EXPECT_EQ(tiny.size(), 0u);
}

}  // namespace
}  // namespace amalgam
