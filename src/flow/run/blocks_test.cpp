#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/event.hpp>

#include "flow/graph/random_graph.hpp"

namespace amalgam {
namespace {

struct tagged {
    int number = 0;
    std::size_t worker = 0;
};

/// Marks each number with its own worker's number.
struct mark : stage<int, tagged> {
    explicit mark(std::size_t worker) : worker_(worker) {}
    void process(int n, outlet<tagged>& out) { out.send({n, worker_}); }

private:
    std::size_t worker_;
};

/// Counts from 0 to `count` through a farm of `workers` marks; returns its output.
template <typename Routing>
std::vector<tagged> through_farm(int count, std::size_t workers, const Routing& routing) {
    graph g;
    auto from = g.add_source<int>("from", [count](outlet<int>& out) {
        for (int i = 0; i < count; ++i)
            out.send(i);
    });
    std::vector<block<int, tagged>> marks;
    for (std::size_t i = 0; i < workers; ++i)
        marks.push_back(g.add<mark>("mark" + std::to_string(i), i));
    std::vector<tagged> got;
    auto to = g.add_sink<tagged>("to", [&](tagged one) { got.push_back(one); });
    g.pipeline(from, g.farm(marks, routing), to);
    run(g);
    return got;
}

std::vector<int> numbers_of(const std::vector<tagged>& all) {
    std::vector<int> numbers;
    for (const tagged& one : all)
        numbers.push_back(one.number);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

std::vector<int> up_to(int count) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i)
        all.push_back(i);
    return all;
}

TEST(farm, round_robin_gives_each_worker_its_turn_and_keeps_its_order) {
    const auto got = through_farm(10000, 3, round_robin);
    EXPECT_EQ(numbers_of(got), up_to(10000));
    std::array<int, 3> last{-3, -2, -1};
    for (const tagged& one : got) {
        EXPECT_EQ(static_cast<std::size_t>(one.number) % 3, one.worker);
        EXPECT_EQ(one.number, last[one.worker] + 3);
        last[one.worker] = one.number;
    }
}

TEST(farm, on_demand_loses_nothing_whatever_the_queue) {
    for (std::size_t queue : {1u, 2u, 5u, 64u})
        EXPECT_EQ(numbers_of(through_farm(5000, 4, on_demand(queue))), up_to(5000)) << queue;
}

TEST(farm, by_key_takes_all_of_one_key_to_one_worker) {
    std::map<int, std::set<std::size_t>> workers_of;
    const auto got = through_farm(10000, 4, by_key([](const int& n) { return n % 37; }));
    EXPECT_EQ(numbers_of(got), up_to(10000));
    std::set<std::size_t> used;
    for (const tagged& one : got) {
        workers_of[one.number % 37].insert(one.worker);
        used.insert(one.worker);
    }
    for (const auto& [key, workers] : workers_of)
        EXPECT_EQ(workers.size(), 1u) << key;
    EXPECT_EQ(used.size(), 4u);
}

TEST(farm, broadcast_gives_every_item_to_every_worker) {
    const auto got = through_farm(1000, 3, broadcast);
    EXPECT_EQ(got.size(), 3000u);
    for (std::size_t worker = 0; worker < 3; ++worker) {
        std::vector<int> its;
        for (const tagged& one : got)
            if (one.worker == worker) its.push_back(one.number);
        EXPECT_EQ(its, up_to(1000));
    }
}

TEST(farm, route_by_asks_the_user) {
    const auto got = through_farm(1000, 3, route_by([](const int& n, std::size_t workers) {
                                      return n < 10 ? 2 : n % (workers - 1);
                                  }));
    for (const tagged& one : got)
        EXPECT_EQ(one.worker, one.number < 10 ? 2u : static_cast<std::size_t>(one.number) % 2);
}

TEST(farm, a_worker_that_there_is_not_is_refused_by_a_sentence) {
    try {
        through_farm(10, 3, route_by([](const int&, std::size_t workers) { return workers; }));
        FAIL();
    } catch (const error& wrong) {
        EXPECT_STREQ(wrong.what(),
                     "the node \"from\" failed: an item was sent to worker 3, expected a number "
                     "from 0 to 2");
    }
}

TEST(farm, on_demand_leaves_no_worker_idle_behind_a_slow_one) {
    graph g;
    auto from = g.add_source<int>("from", [](outlet<int>& out) {
        for (int i = 0; i < 300; ++i)
            out.send(i);
    });
    event first_done;
    int by_others = 0;
    std::vector<block<int, int>> workers;
    workers.push_back(g.add_stage<int, int>("slow", [&](int n) {
        first_done.wait();  // Until the other has nearly finished.
        return n;
    }));
    workers.push_back(g.add_stage<int, int>("quick", [&](int n) {
        if (++by_others == 290) first_done.set();
        return n;
    }));
    int got = 0;
    auto to = g.add_sink<int>("to", [&](int) { ++got; });
    g.pipeline(from, g.farm(workers, on_demand(2)), to);
    run(g);
    EXPECT_EQ(got, 300);
}

TEST(farm, of_pipelines_and_farms_nests) {
    graph g;
    auto from = g.add_source<int>("from", [](outlet<int>& out) {
        for (int i = 0; i < 1000; ++i)
            out.send(i);
    });
    auto plus_one = [](int n) { return n + 1; };
    std::vector<block<int, int>> outer;
    for (int i = 0; i < 2; ++i) {
        const std::string name = "outer" + std::to_string(i);
        outer.push_back(g.pipeline(g.add_stage<int, int>(name + ".first", plus_one),
                                   g.add_farm<int, int>(name + ".inner", 3, plus_one, on_demand()),
                                   g.add_stage<int, int>(name + ".last", plus_one)));
    }
    long sum = 0;
    auto to = g.add_sink<int>("to", [&](int n) { sum += n; });
    g.pipeline(from, g.farm(outer), to);
    run(g);
    EXPECT_EQ(sum, 999L * 1000 / 2 + 3 * 1000);
}

TEST(all_to_all, by_key_meets_the_same_key_from_every_left_worker_at_one_right_worker) {
    graph g;
    std::vector<block<void, int>> left;
    for (int l = 0; l < 3; ++l)
        left.push_back(g.add_source<int>("left" + std::to_string(l), [](outlet<int>& out) {
            for (int i = 0; i < 500; ++i)
                out.send(i);
        }));
    std::vector<std::map<int, int>> counts(4);
    std::vector<block<int, void>> right;
    for (std::size_t r = 0; r < 4; ++r)
        right.push_back(
            g.add_sink<int>("right" + std::to_string(r), [&counts, r](int n) { ++counts[r][n]; }));
    g.all_to_all(left, right, by_key([](const int& n) { return n; }));
    run(g);
    std::map<int, int> all;
    for (const auto& each : counts) {
        EXPECT_FALSE(each.empty());
        for (const auto& [n, count] : each) {
            EXPECT_EQ(count, 3) << n;
            all[n] += count;
        }
    }
    EXPECT_EQ(all.size(), 500u);
}

/// Records senders, and when each has ended.
struct listener : sink<int> {
    explicit listener(std::vector<std::vector<int>>& by_sender, std::vector<std::size_t>& ended)
        : by_sender_(by_sender), ended_(ended) {}
    void consume(int n, std::size_t from) { by_sender_.at(from).push_back(n); }
    void end_of_stream(std::size_t from) { ended_.push_back(from); }

private:
    std::vector<std::vector<int>>& by_sender_;
    std::vector<std::size_t>& ended_;
};

TEST(several_senders, are_told_apart_and_end_one_by_one) {
    graph g;
    std::vector<std::vector<int>> by_sender(3);
    std::vector<std::size_t> ended;
    auto to = g.add<listener>("to", by_sender, ended);
    for (int s = 0; s < 3; ++s)
        g.pipeline(g.add_source<int>("from" + std::to_string(s),
                                     [s](outlet<int>& out) {
                                         for (int i = 0; i < 100 * (s + 1); ++i)
                                             out.send(1000 * s + i);
                                     }),
                   to);
    run(g);
    for (int s = 0; s < 3; ++s) {
        const auto& its = by_sender[static_cast<std::size_t>(s)];
        ASSERT_EQ(its.size(), 100u * static_cast<std::size_t>(s + 1));
        for (std::size_t i = 0; i < its.size(); ++i)
            EXPECT_EQ(its[i], 1000 * s + static_cast<int>(i));
    }
    std::sort(ended.begin(), ended.end());
    EXPECT_EQ(ended, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(combine, makes_one_node_that_calls_its_hooks_in_order) {
    std::vector<std::string> calls;
    struct noisy : stage<int, int> {
        noisy(std::string name, std::vector<std::string>& calls) : name_(name), calls_(calls) {}
        void start(const place&) { calls_.push_back(name_ + " starts"); }
        void process(int n, outlet<int>& out) { out.send(n + 1); }
        void end(outlet<int>& out) {
            calls_.push_back(name_ + " ends");
            out.send(100);
        }
        std::string name_;
        std::vector<std::string>& calls_;
    };
    graph g;
    auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(1); });
    auto one = g.combine(g.add<noisy>("a", "a", calls), g.add<noisy>("b", "b", calls),
                         g.add<noisy>("c", "c", calls));
    std::vector<int> got;
    auto to = g.add_sink<int>("to", [&](int n) { got.push_back(n); });
    g.pipeline(from, one, to);
    run(g);
    EXPECT_EQ(got, (std::vector<int>{4, 102, 101, 100}));
    std::sort(calls.begin(), calls.begin() + 3);
    EXPECT_EQ(calls, (std::vector<std::string>{"a starts", "b starts", "c starts", "a ends",
                                               "b ends", "c ends"}));
}

TEST(combine, of_a_source_a_stage_and_a_sink_needs_no_queue) {
    graph g;
    long sum = 0;
    g.combine(g.add_source<int>("from",
                                [](outlet<int>& out) {
                                    for (int i = 0; i < 1000; ++i)
                                        out.send(i);
                                }),
              g.add_stage<int, int>("twice", [](int n) { return 2 * n; }),
              g.add_sink<int>("to", [&](int n) { sum += n; }));
    run(g);
    EXPECT_EQ(sum, 999L * 1000);
}

struct walk {
    std::uint64_t start = 0;
    std::uint64_t at = 0;
    std::uint64_t steps = 0;
};

std::uint64_t collatz_steps(std::uint64_t n) {
    std::uint64_t steps = 0;
    for (; n != 1; ++steps)
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    return steps;
}

void expect_collatz(std::size_t workers, std::uint64_t count, run_options options = {}) {
    graph g;
    auto from = g.add_source<walk>("from", [count](outlet<walk>& out) {
        for (std::uint64_t i = 1; i <= count; ++i)
            out.send({i, i, 0});
    });
    auto step = g.add_farm<walk, walk>(
        "step", workers,
        [](walk w) {
            if (w.at == 1) return w;
            return walk{w.start, w.at % 2 == 0 ? w.at / 2 : 3 * w.at + 1, w.steps + 1};
        },
        on_demand(4));
    auto enter = g.add_stage<walk, walk>("enter", [](walk w) { return w; });
    auto loop = g.feedback(g.pipeline(enter, step), [](const walk& w) { return w.at != 1; });
    std::map<std::uint64_t, std::uint64_t> steps;
    auto to = g.add_sink<walk>("to", [&](walk w) { steps[w.start] = w.steps; });
    g.pipeline(from, loop, to);
    run(g, options);
    ASSERT_EQ(steps.size(), count);
    for (const auto& [n, taken] : steps)
        EXPECT_EQ(taken, collatz_steps(n)) << n;
}

TEST(feedback, runs_items_through_its_body_until_they_are_done) {
    expect_collatz(3, 2000);
    expect_collatz(1, 1);
    expect_collatz(2, 0);
}

TEST(feedback, small_queues_do_not_stop_it) {
    expect_collatz(3, 3000, {.queue_items = 2});
}

TEST(feedback, of_a_farm_alone_sends_back_to_all_its_workers) {
    graph g;
    auto from = g.add_source<walk>("from", [](outlet<walk>& out) {
        for (std::uint64_t i = 1; i <= 3000; ++i)
            out.send({i, i, 0});
    });
    auto step = g.add_farm<walk, walk>(
        "step", 3,
        [](walk w) {
            return walk{w.start, w.at - w.at / 2, w.steps + 1};
        },
        on_demand(1));
    std::uint64_t got = 0;
    auto to = g.add_sink<walk>("to", [&](walk w) { got += w.start; });
    g.pipeline(from, g.feedback(step, [](const walk& w) { return w.at > 1; }), to);
    run(g, {.queue_items = 2});
    EXPECT_EQ(got, 3000u * 3001 / 2);
}

TEST(feedback, of_a_single_node_and_nested_ends) {
    graph g;
    auto from = g.add_source<int>("from", [](outlet<int>& out) {
        for (int i = 0; i < 200; ++i)
            out.send(0);
    });
    // The inner loop counts to the next multiple of 5, the outer one to 20.
    auto inner = g.feedback(g.add_stage<int, int>("inner", [](int n) { return n + 1; }),
                            [](const int& n) { return n % 5 != 0; });
    int passes = 0;
    auto outer = g.feedback(g.pipeline(g.add_stage<int, int>("count",
                                                             [&](int n) {
                                                                 ++passes;
                                                                 return n;
                                                             }),
                                       inner),
                            [](const int& n) { return n < 20; });
    std::vector<int> got;
    auto to = g.add_sink<int>("to", [&](int n) { got.push_back(n); });
    g.pipeline(from, outer, to);
    run(g);
    EXPECT_EQ(got, std::vector<int>(200, 20));
    EXPECT_EQ(passes, 4 * 200);
}

TEST(feedback, send_to_chooses_among_the_workers_of_the_loop_for_what_goes_back) {
    struct parcel {
        int hops = 0;
        std::size_t at = 0;  ///< The worker that must get it.
    };
    struct worker : stage<parcel, parcel> {
        explicit worker(std::size_t which) : own(which) {}
        void process(parcel item, outlet<parcel>& out) {
            EXPECT_EQ(item.at, own);
            EXPECT_EQ(out.workers(), 2u);
            EXPECT_EQ(out.workers_back(), 3u);
            const std::size_t next = (own + 1) % (++item.hops < 10 ? 3 : 2);
            out.send_to(next, {item.hops, next});
        }
        std::size_t own;
    };
    graph g;
    std::vector<block<parcel, parcel>> workers;
    for (std::size_t i = 0; i < 3; ++i)
        workers.push_back(g.add<worker>("worker" + std::to_string(i), i));
    std::vector<block<parcel, void>> sinks;
    std::vector<int> got(2);
    for (std::size_t i = 0; i < 2; ++i)
        sinks.push_back(g.add_sink<parcel>("to" + std::to_string(i), [&got, i](parcel item) {
            EXPECT_EQ(item.hops, 10);
            EXPECT_EQ(item.at, i);
            ++got[i];
        }));
    g.pipeline(g.add_source<parcel>("from",
                                    [](outlet<parcel>& out) {
                                        EXPECT_EQ(out.workers_back(), 0u);
                                        for (std::size_t i = 0; i < 30; ++i)
                                            out.send_to(i % 3, {0, i % 3});
                                    }),
               g.feedback(g.farm(workers), [](const parcel& item) { return item.hops < 10; }),
               g.farm(sinks));
    run(g);
    EXPECT_EQ(got[0] + got[1], 30);
}

TEST(feedback, body_that_drops_or_multiplies_items_ends) {
    graph g;
    auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(12); });
    // A tree: n becomes two of n - 1, down to 0; odd leaves are dropped.
    struct split : stage<int, int> {
        void process(int n, outlet<int>& out) {
            if (n == 0 && ++leaves % 2 == 1) return;
            out.send(n - 1);
            if (n > 0) out.send(n - 1);
        }
        int leaves = 0;
    };
    int got = 0;
    auto to = g.add_sink<int>("to", [&](int n) {
        EXPECT_EQ(n, -1);
        ++got;
    });
    g.pipeline(from, g.feedback(g.add<split>("split"), [](const int& n) { return n >= 0; }), to);
    run(g);
    EXPECT_EQ(got, 2048);
}

TEST(graph_of_blocks, a_worker_that_throws_ends_everything) {
    for (const bool in_loop : {false, true}) {
        graph g;
        auto from = g.add_source<int>("from", [](outlet<int>& out) {
            for (int i = 0;; ++i)
                out.send(i);  // Until the failure.
        });
        auto work = g.add_farm<int, int>(
            "work", 3,
            [](int n) {
                if (n == 5000) throw std::runtime_error("5000 is too much");
                return n;
            },
            on_demand());
        auto body = in_loop ? g.feedback(work, [](const int& n) { return n < 0; }) : work;
        g.pipeline(from, body, g.add_sink<int>("to", [](int) {}));
        try {
            run(g);
            FAIL();
        } catch (const error& wrong) {
            EXPECT_EQ(wrong.code().code, errc::handler_failed);
            EXPECT_NE(std::string(wrong.what()).find("5000 is too much"), std::string::npos)
                << wrong.what();
        }
    }
}

TEST(graph_of_blocks, runs_again) {
    graph g;
    int got = 0;
    g.pipeline(g.add_source<int>("from",
                                 [](outlet<int>& out) {
                                     for (int i = 0; i < 100; ++i)
                                         out.send(i);
                                 }),
               g.feedback(g.add_farm<int, int>("work", 2, [](int n) { return n - 10; }),
                          [](const int& n) { return n > 0; }),
               g.add_sink<int>("to", [&](int) { ++got; }));
    for (int i = 1; i <= 3; ++i) {
        run(g);
        EXPECT_EQ(got, 100 * i);
    }
}

TEST(graph_of_blocks, gives_what_a_plain_loop_gives_however_blocks_are_nested) {
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        const auto plan = random_graph::draw(seed, 1);
        graph g;
        random_graph::outcome outcome;
        random_graph::build(g, plan, outcome);
        run(g, {.threads = 1 + static_cast<unsigned>(seed % 3), .queue_items = 1 + seed % 7});
        ASSERT_EQ(random_graph::all_of(outcome), random_graph::expected(plan)) << "seed " << seed;
        // Several sinks may record it at once; the single-threaded test covers that.
        ASSERT_EQ(outcome.overtaken, "") << "seed " << seed;
    }
}

}  // namespace
}  // namespace amalgam
