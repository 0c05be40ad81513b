// What FastFlow runs as tasks, each compared with a plain computation.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include <ff/dc.hpp>
#include <ff/ff.hpp>
#include <ff/gsearch.hpp>
#include <ff/mdf.hpp>
#include <ff/poolEvolution.hpp>
#include <ff/selector.hpp>
#include <ff/stencilReduce.hpp>
#include <ff/taskf.hpp>
#include <gtest/gtest.h>

using namespace ff;

namespace {

void add_to(long* to, const long* from, long times) {
    *to += *from * times;
}

struct graph_data {
    ff_mdf* graph = nullptr;
    long a = 1, b = 2, c = 3;
    bool fails = false;
};

param_info uses(const void* what, data_direction_t how) {
    return {reinterpret_cast<uintptr_t>(what), how};
}

void add_tasks(graph_data* const data) {
    std::vector<param_info> named;
    for (int i = 0; i < 100; ++i) {
        named = {uses(&data->a, INPUT), uses(&data->b, INPUT), uses(&data->b, OUTPUT)};
        data->graph->AddTask(named, add_to, &data->b, &data->a, 2L);
        named = {uses(&data->b, INPUT), uses(&data->a, OUTPUT)};
        data->graph->AddTask(
            named, [data](long by) { data->a = data->b % by; }, 1000L);
        if (data->fails)
            data->graph->AddTask(
                named, [](int) { throw std::runtime_error("task"); }, 0);
    }
}

}  // namespace

TEST(fastflow_mdf, tasks_run_as_one_after_the_other) {
    long a = 1, b = 2;
    for (int i = 0; i < 200; ++i) {
        b += a * 2;
        a = b % 1000;
    }
    graph_data data;
    ff_mdf graph(add_tasks, &data, 16, 3);
    data.graph = &graph;
    EXPECT_EQ(graph.run_and_wait_end(), 0);
    EXPECT_EQ(graph.run_then_freeze(2), 0);
    EXPECT_EQ(data.a, a);
    EXPECT_EQ(data.b, b);
}

TEST(fastflow_mdf, an_exception_out_of_a_task_is_a_failure_of_the_run) {
    graph_data data;
    data.fails = true;
    ff_mdf graph(add_tasks, &data, 16, 2);
    data.graph = &graph;
    EXPECT_EQ(graph.run_and_wait_end(), -1);
    data.fails = false;
    EXPECT_EQ(graph.run_and_wait_end(), 0);
}

TEST(fastflow_taskf, keeps_tasks_until_it_runs) {
    std::atomic<long> sum = 0;
    const auto add = [&sum](long n) { sum += n; };
    ff_taskf tasks(3);
    tasks.AddTask(add, 1L);
    tasks.AddTask(add, 2L);
    EXPECT_EQ(sum, 0);
    EXPECT_EQ(tasks.run_then_freeze(1), 0);
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(tasks.run(), 0);
    for (long i = 0; i < 5000; ++i)
        tasks.AddTask(add, i);
    EXPECT_EQ(tasks.wait(), 0);
    EXPECT_EQ(sum, 3 + 4999L * 2500);
    tasks.AddTask([](int) { throw std::runtime_error("task"); }, 0);
    EXPECT_EQ(tasks.run_and_wait_end(), -1);
}

namespace {

void split(const long& n, std::vector<long>& parts) {
    parts.push_back(n - 1);
    parts.push_back(n - 2);
}
void combine(std::vector<long>& found, long& sum) {
    sum = found[0] + found[1];
}
void solve(const long&, long& one) {
    one = 1;
}
bool is_base(const long& n) {
    return n <= 2;
}

struct counts_to_fifteen : ff_node_t<long> {
    long* svc(long*) override {
        for (long i = 1; i <= 15; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
};
struct collects : ff_node_t<long> {
    long* svc(long* item) override {
        found.push_back(*item);
        delete item;
        return GO_ON;
    }
    std::vector<long> found;
};

}  // namespace

TEST(fastflow_dc, computes_fibonacci_numbers_alone_and_as_a_node) {
    for (const int workers : {1, 2, 4}) {
        long found = 0;
        ff_DC<long> alone(split, combine, solve, is_base, 20L, found, workers);
        EXPECT_EQ(alone.run_and_wait_end(), 0);
        EXPECT_EQ(found, 6765);

        counts_to_fifteen first;
        ff_DC<long> middle(split, combine, solve, is_base, workers);
        collects last;
        ff_Pipe<> pipe(first, middle, last);
        EXPECT_EQ(pipe.run_and_wait_end(), 0);
        EXPECT_EQ(last.found,
                  (std::vector<long>{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610}));
    }
}

TEST(fastflow_dc, an_exception_out_of_a_function_is_a_failure_of_the_run) {
    const auto fails = [](const long&, long&) { throw std::runtime_error("leaf"); };
    for (const int workers : {1, 3}) {
        long found = 0;
        ff_DC<long> alone(split, combine, fails, is_base, 10L, found, workers);
        EXPECT_EQ(alone.run_and_wait_end(), -1);
    }
}

TEST(fastflow_pool_evolution, evolves_until_it_is_to_end) {
    std::vector<long> population(100, 0);
    using loops = ParallelForReduce<long>;
    poolEvolution<long, long> pool(
        3, population,
        [](loops&, std::vector<long>& all, std::vector<long>& chosen, long&) { chosen = all; },
        [](long& one, const long&, const int thread) -> const long& {
            EXPECT_TRUE(thread >= 0 && thread < 3);
            return ++one;
        },
        [](loops&, std::vector<long>&, std::vector<long>&, long& rounds) { ++rounds; },
        [](const std::vector<long>&, long& rounds) { return rounds == 7; }, 0);
    pool.setParEvolution(2);
    EXPECT_EQ(pool.run_and_wait_end(), 0);
    EXPECT_EQ(pool.getEnv(), 7);
    EXPECT_EQ(pool.get_result(), std::vector<long>(100, 7));
}

TEST(fastflow_stencil, writes_each_element_from_its_neighbors_and_ends_by_the_reduced_value) {
    constexpr size_t side = 20;
    std::vector<long> in(side * side), out(side * side), expected(side * side, 1);
    stencil2D<long> stencil(in.data(), out.data(), side, side, side, 3);
    const auto one = [](size_t, size_t, void*) { return 1L; };
    stencil.initInFunc(one, nullptr);
    stencil.initOutFunc(one, nullptr);
    const auto next = [](long i, long j, const long* grid, size_t x, size_t) {
        const auto at = static_cast<size_t>(i) * x + static_cast<size_t>(j);
        return (grid[at - 1] + grid[at + 1] + grid[at - x] + grid[at + x]) % 1000;
    };
    stencil.computeFunc(
        [&](long i, long j, long* grid, size_t x, size_t y, long& changed) {
            ++changed;
            return next(i, j, grid, x, y);
        },
        1, side - 1, 1, 1, side - 1, 1);
    stencil.reduceFunc([](long, size_t rounds) { return rounds < 6; }, 100,
                       [](long& sum, long part) { sum += part; }, 0);
    EXPECT_EQ(stencil.run_and_wait_end(), 0);
    EXPECT_EQ(stencil.getIter(), 6u);
    EXPECT_EQ(stencil.getReduceVar(), 6 * 18 * 18);
    for (int round = 0; round < 6; ++round) {
        const std::vector<long> before = expected;
        for (long i = 1; i < 19; ++i)
            for (long j = 1; j < 19; ++j)
                expected[static_cast<size_t>(i) * side + static_cast<size_t>(j)] =
                    next(i, j, before.data(), side, side);
    }
    EXPECT_EQ(in, expected);  // written in the sixth round
}

namespace {

struct times : ff_node_t<long> {
    explicit times(long by) : factor(by) {}
    int svc_init() override {
        ++begun;
        return 0;
    }
    long* svc(long* item) override {
        *item *= factor;
        ff_send_out(item);
        return GO_ON;
    }
    long factor;
    int begun = 0;
};

}  // namespace

TEST(fastflow_selector, the_selected_node_gets_the_items_and_sends_as_the_selector) {
    for (const size_t which : {0, 1}) {
        counts_to_fifteen first;
        times twice(2);
        ff_nodeSelector<long> middle(twice, std::make_unique<times>(3));
        collects last;
        middle.selectNode(which);
        EXPECT_EQ(middle.numNodes(), 2u);
        ff_Pipe<> pipe(first, middle, last);
        EXPECT_EQ(pipe.run_and_wait_end(), 0);
        ASSERT_EQ(last.found.size(), 15u);
        EXPECT_EQ(last.found.back(), 15 * (which == 0 ? 2 : 3));
        EXPECT_EQ(twice.begun, 1);
    }
}

TEST(fastflow_graph_search, finds_one_or_all_that_are_equal_also_in_circles) {
    using node = gnode_t<long>;
    std::vector<std::unique_ptr<node>> nodes;
    for (long i = 0; i < 100; ++i)
        nodes.push_back(std::make_unique<node>(i, i % 10));
    for (size_t i = 0; i < 90; ++i) {  // the last ten are not reached
        nodes[i]->add_node(nodes[(2 * i + 1) % 90].get());
        nodes[i]->add_node(nodes[(i + 1) % 90].get());
    }
    ff_graphsearch<node> search(3);
    node wanted(-1, 7);
    std::deque<node*> all;
    EXPECT_TRUE(search.search(nodes[0].get(), &wanted, all, 2));
    EXPECT_EQ(all.size(), 9u);
    node* one = nullptr;
    EXPECT_TRUE(search.search(nodes[0].get(), &wanted, one));
    EXPECT_EQ(one->getElement(), 7);
    node missing(-1, 11);
    EXPECT_FALSE(search.search(nodes[0].get(), &missing, one));
}

namespace {

struct rounds : ff_thread {
    ~rounds() override { wait(); }
    int svc_init() override { return fails ? -1 : 0; }
    void* svc(void*) override {
        ++ran;
        return ends ? FF_EOS : FF_GO_ON;
    }
    std::atomic<int> ran{0};
    bool ends = false;
    bool fails = false;
};

}  // namespace

TEST(fastflow_thread, freezes_between_its_rounds_until_it_is_thawed) {
    rounds thread;
    thread.freeze();
    EXPECT_EQ(thread.spawn(), 0);
    EXPECT_EQ(thread.spawn(), -1);
    EXPECT_EQ(thread.wait_freezing(), 0);
    EXPECT_EQ(thread.ran, 1);
    EXPECT_TRUE(thread.isfrozen());
    thread.thaw(true);
    EXPECT_EQ(thread.wait_freezing(), 0);
    EXPECT_EQ(thread.ran, 2);
    EXPECT_EQ(thread.wait(), 0);
    EXPECT_TRUE(thread.done());

    rounds once;
    once.ends = true;
    EXPECT_EQ(once.run(), 0);
    EXPECT_EQ(once.wait(), 0);
    EXPECT_EQ(once.ran, 1);

    rounds none;
    none.fails = true;
    none.freeze();
    EXPECT_EQ(none.run(), 0);
    EXPECT_EQ(none.wait_freezing(), -1);
    EXPECT_EQ(none.ran, 0);
}
