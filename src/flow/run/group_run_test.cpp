#include "flow/run/group_run.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/ult.hpp>

#include "conformance/slow_build.hpp"
#include "flow/graph/random_graph.hpp"
#include "flow/graph/random_pipeline.hpp"
#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

/// A source in G0 that runs `generate`, and a sink in G1 that runs `consume`.
template <typename Generate, typename Consume>
auto from_one_to_the_other(Generate generate, Consume consume) {
    return [=](graph& g, const process_id&) {
        auto from = g.add_source<int>("from", generate);
        auto to = g.add_sink<int>("to", consume);
        g.pipeline(from, to);
        g.group("G0").add(from);
        g.group("G1").add(to);
    };
}

void compare_with_plain_loop(std::uint64_t seed, bool replicas) {
    auto plan = random_pipeline::draw(seed, replicas);
    std::vector<random_pipeline::item> results;
    seeded_random random(seed);
    run_options options{.batch_bytes = 64 + random.below(4000),
                        .window_bytes = 64 + random.below(16000)};
    auto text = random_pipeline::config_text(plan, [](std::size_t g, std::size_t r) {
        return "loop://e" + std::to_string(g) + "-" + std::to_string(r);
    });
    simulated_run all(
        text, options,
        [&](graph& g, const process_id&) { random_pipeline::build(g, plan, results); },
        {.seed = seed, .link_bytes = std::size_t{1} << (10 + random.below(10))});
    all.net.delay(0us, std::chrono::microseconds(random.below(200)));
    all.net.reorder(random.chance(0.5));
    std::shuffle(all.processes.begin(), all.processes.end(), random);
    for (auto& one : all.processes) {
        all.start(*one);
        if (random.chance(0.5)) all.net.run_for(std::chrono::milliseconds(random.below(50)));
    }
    all.net.run_until_idle();

    ASSERT_TRUE(all.over()) << "seed " << seed;
    for (std::size_t i = 0; i < all.processes.size(); ++i)
        ASSERT_EQ(all.failure_of(i), "") << "seed " << seed;
    auto expected = random_pipeline::expected(plan);
    if (plan.replicated()) {
        std::sort(results.begin(), results.end());
        std::sort(expected.begin(), expected.end());
    }
    ASSERT_EQ(results, expected) << "seed " << seed;
}

TEST(group_run, gives_what_a_plain_loop_gives_wherever_the_pipeline_is_cut) {
    for (std::uint64_t seed = 0; seed < 300; ++seed)
        compare_with_plain_loop(seed, false);
}

TEST(group_run, gives_the_same_items_with_many_senders_and_many_receivers) {
    for (std::uint64_t seed = 1000; seed < 1300; ++seed)
        compare_with_plain_loop(seed, true);
}

TEST(group_run, gives_what_a_plain_loop_gives_wherever_blocks_are_cut) {
    for (std::uint64_t seed = 0; seed < (conformance::slow_build ? 100 : 3000); ++seed) {
        const auto plan = random_graph::draw(seed, 6);
        if (plan.groups == 1) continue;
        random_graph::outcome outcome;
        seeded_random random(seed);
        run_options options{.batch_bytes = 64 + random.below(1000),
                            .window_bytes = 64 + random.below(4000)};
        const auto text =
            random_graph::config_text(plan, [](const auto& group) { return "loop://" + group; });
        simulated_run all(
            text, options,
            [&](graph& g, const process_id&) { random_graph::build(g, plan, outcome); },
            {.seed = seed, .link_bytes = std::size_t{1} << (10 + random.below(10))});
        all.net.delay(0us, std::chrono::microseconds(random.below(200)));
        all.net.reorder(random.chance(0.5));
        all.start_all();
        all.run_until_idle();
        ASSERT_TRUE(all.over()) << "seed " << seed;
        for (std::size_t i = 0; i < all.processes.size(); ++i)
            ASSERT_EQ(all.failure_of(i), "") << "seed " << seed;
        ASSERT_EQ(random_graph::all_of(outcome), random_graph::expected(plan)) << "seed " << seed;
        ASSERT_EQ(outcome.overtaken, "") << "seed " << seed;
    }
}

TEST(group_run, a_group_may_have_nodes_on_both_sides_of_another) {
    std::vector<long> got;
    simulated_run all(two_groups, {}, [&got](graph& g, const process_id&) {
        auto from = g.add_source<int>("from", [](outlet<int>& out) {
            for (int i = 0; i < 1000; ++i)
                out.send(i);
        });
        auto middle = g.add_stage<int, long>("middle", [](int n) { return 2L * n; });
        auto to = g.add_sink<long>("to", [&got](long n) { got.push_back(n); });
        g.pipeline(from, middle, to);
        g.group("G0").add(from, to);
        g.group("G1").add(middle);
    });
    all.start_all();
    all.net.run_until_idle();
    EXPECT_TRUE(all.over());
    EXPECT_EQ(got.size(), 1000u);
    EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
}

TEST(group_run, items_do_not_wait_for_a_full_batch_while_the_source_is_busy_elsewhere) {
    std::vector<clock::time_point> arrived;
    loop_network* net = nullptr;
    simulated_run all(two_groups, {},
                      from_one_to_the_other(
                          [](outlet<int>& out) {
                              for (int i = 0; i < 3; ++i)
                                  out.send(i);
                              this_task::sleep_for(10s);
                              out.send(3);
                          },
                          [&](int) { arrived.push_back(net->now()); }));
    net = &all.net;
    all.net.delay(1ms);
    auto started = all.net.now();
    all.start_all();
    all.net.run_until_idle();
    ASSERT_EQ(arrived.size(), 4u);
    EXPECT_LT(arrived[2] - started, 1s);
    EXPECT_GT(arrived[3] - started, 10s);
}

TEST(group_run, a_fast_source_sends_full_batches) {
    std::size_t items = 0;
    simulated_run all(two_groups, {.batch_bytes = 4096},
                      from_one_to_the_other(
                          [](outlet<int>& out) {
                              for (int i = 0; i < 100000; ++i)
                                  out.send(i);
                          },
                          [&items](int) { ++items; }));
    std::size_t frames = 0;
    all.net.on_event([&frames](const loop_event& event) {
        if (event.what == loop_event::kind::frame && event.from == "G0") ++frames;
    });
    all.net.delay(10us);
    all.start_all();
    all.net.run_until_idle();
    EXPECT_EQ(items, 100000u);
    EXPECT_LT(frames, 250u);  // 98 batches' worth of items.
}

TEST(group_run, credits_bound_what_a_slow_receiver_has_waiting) {
    int sent = 0, taken = 0, most_ahead = 0;
    simulated_run all(two_groups, {.batch_bytes = 400, .window_bytes = 4000},
                      from_one_to_the_other(
                          [&sent](outlet<int>& out) {
                              for (; sent < 20000; ++sent)
                                  out.send(sent);
                          },
                          [&](int) {
                              most_ahead = std::max(most_ahead, sent - taken);
                              if (++taken % 100 == 0) this_task::sleep_for(1ms);
                          }));
    all.start_all();
    all.net.run_until_idle();
    EXPECT_EQ(taken, 20000);
    // The window, the batch that exceeds it, the one being filled, and the one in use.
    EXPECT_LE(most_ahead, (4000 + 3 * 400) / 4);
    EXPECT_GE(most_ahead, 4000 / 4 / 2);
}

TEST(group_run, receivers_share_the_work_by_how_fast_they_take_it) {
    std::vector<int> taken(2);
    simulated_run all(
        R"({"groups": {"G0": {"endpoint": "loop://a"}, "G1": {"endpoint": ["loop://b", "loop://c"]}}})",
        {.batch_bytes = 64, .window_bytes = 128}, [&taken](graph& g, const process_id& here) {
            auto from = g.add_source<int>("from", [](outlet<int>& out) {
                for (int i = 0; i < 4000; ++i)
                    out.send(i);
            });
            auto to = g.add_sink<int>("to", [&taken, here](int) {
                ++taken[here.replica];
                this_task::sleep_for(here.replica == 0 ? 1ms : 3ms);
            });
            g.pipeline(from, to);
            g.group("G0").add(from);
            g.group("G1").add(to);
        });
    all.start_all();
    all.net.run_until_idle();
    EXPECT_EQ(taken[0] + taken[1], 4000);
    EXPECT_NEAR(taken[0], 3000, 150);
}

TEST(group_run, each_process_of_a_group_knows_its_place) {
    std::vector<std::string> places;
    simulated_run all(
        R"({"groups": {"A": {"endpoint": "loop://a"}, "B": {"endpoint": ["loop://b", "loop://c"]}}})",
        {}, [&places](graph& g, const process_id&) {
            struct placed : sink<int> {
                explicit placed(std::vector<std::string>& to) : places(to) {}
                void start(const place& here) {
                    places.push_back(here.group + std::to_string(here.replica) + "/" +
                                     std::to_string(here.replicas));
                }
                void consume(int) {}
                std::vector<std::string>& places;
            };
            auto from = g.add_source<int>("from", [](outlet<int>&) {});
            auto to = g.add<placed>("to", places);
            g.pipeline(from, to);
            g.group("A").add(from);
            g.group("B").add(to);
        });
    all.start_all();
    all.net.run_until_idle();
    std::sort(places.begin(), places.end());
    EXPECT_EQ(places, (std::vector<std::string>{"B0/2", "B1/2"}));
}

TEST(group_run, a_receiver_may_start_long_after_its_sender) {
    int items = 0;
    simulated_run all(
        two_groups, {},
        from_one_to_the_other([](outlet<int>& out) { out.send(1); }, [&items](int) { ++items; }));
    all.start(all[0]);
    all.net.run_for(20s);
    all.start(all[1]);
    all.net.run_until_idle();
    EXPECT_TRUE(all.over());
    EXPECT_EQ(items, 1);
}

TEST(group_run, a_run_may_last_longer_than_the_limit_on_joining) {
    int got = 0;
    simulated_run all(two_groups, {.join_limit = 3s},
                      from_one_to_the_other(
                          [](outlet<int>& out) {
                              for (int i = 0; i < 20; ++i) {
                                  this_task::sleep_for(1s);
                                  out.send(i);
                              }
                          },
                          [&](int) { ++got; }));
    for (auto& one : all.processes)
        all.start(*one);
    all.net.run_until_idle();
    ASSERT_TRUE(all.over());
    for (std::size_t i = 0; i < all.processes.size(); ++i)
        EXPECT_EQ(all.failure_of(i), "");
    EXPECT_EQ(got, 20);
}

TEST(group_run, a_receiver_that_never_starts_is_named_after_the_limit) {
    bool started = false;
    simulated_run all(
        two_groups, {.join_limit = 3s},
        from_one_to_the_other([&started](outlet<int>&) { started = true; }, [](int) {}));
    all.start(all[0]);
    auto begin = all.net.now();
    all.net.run_until_idle();
    EXPECT_TRUE(all[0].running->over().is_set());
    EXPECT_EQ(all.failure_of(0).rfind("group G1 did not answer at loop://G1 within 3 s (", 0), 0u);
    EXPECT_LE(all.net.now() - begin, 10s);
    EXPECT_FALSE(started);
}

TEST(group_run, a_sender_that_never_starts_is_named_after_the_limit) {
    simulated_run all(two_groups, {.join_limit = 3s},
                      from_one_to_the_other([](outlet<int>&) {}, [](int) {}));
    all.start(all[1]);
    all.net.run_until_idle();
    EXPECT_TRUE(all[1].running->over().is_set());
    EXPECT_EQ(all.failure_of(1), "group G0 did not join within 3 s, expected it to be running");
}

TEST(group_run, processes_that_built_different_graphs_do_not_start) {
    bool started = false;
    simulated_run all(two_groups, {}, [&started](graph& g, const process_id& here) {
        auto from = g.add_source<int>("from", [&started](outlet<int>&) { started = true; });
        auto to = g.add_sink<int>(here.group == 0 ? "to" : "not to", [](int) {});
        g.pipeline(from, to);
        g.group("G0").add(from);
        g.group("G1").add(to);
    });
    all.start_all();
    all.net.run_for(1s);
    EXPECT_NE(all.failure_of(0).find("it built a different graph than group G1"),
              std::string::npos);
    EXPECT_FALSE(started);
    all.net.run_until_idle();
}

/// Three groups in a row; the middle one is killed, or throws, after some items.
class broken_run : public testing::Test {
protected:
    template <typename Middle>
    void run_until_idle(Middle middle, std::function<void(simulated_run&)> then) {
        simulated_run all(
            R"({"groups": {"G0": {"endpoint": "loop://a"}, "G1": {"endpoint": "loop://b"},
                           "G2": {"endpoint": "loop://c"}}})",
            {.batch_bytes = 128, .window_bytes = 512}, [&](graph& g, const process_id&) {
                auto from = g.add_source<int>("from", [](outlet<int>& out) {
                    for (int i = 0;; ++i) {
                        out.send(i);
                        if (i % 50 == 0) this_task::sleep_for(1ms);
                    }
                });
                auto stage = g.add_stage<int, int>("middle", middle);
                auto to = g.add_sink<int>("to", [this](int n) { last_ = n; });
                g.pipeline(from, stage, to);
                g.group("G0").add(from);
                g.group("G1").add(stage);
                g.group("G2").add(to);
            });
        all.start_all();
        then(all);
        all.net.run_until_idle();
        EXPECT_TRUE(all.over());
        for (std::size_t i = 0; i < 3; ++i)
            failures_.push_back(all.failure_of(i));
    }

    int last_ = 0;
    std::vector<std::string> failures_;
};

TEST_F(broken_run, a_killed_group_ends_the_others_with_its_name) {
    run_until_idle([](int n) { return n; },
                   [this](simulated_run& all) {
                       all.net.run_for(200ms);
                       EXPECT_GT(last_, 0);
                       all.net.kill("G1");
                   });
    EXPECT_EQ(failures_[0].rfind("lost contact with group G1 (", 0), 0u) << failures_[0];
    EXPECT_EQ(failures_[2].rfind("lost contact with group G1 (", 0), 0u) << failures_[2];
}

TEST(broken_graph, ends_everywhere_when_any_of_its_groups_is_killed) {
    for (std::uint64_t seed = 0; seed < (conformance::slow_build ? 25 : 300); ++seed) {
        const auto plan = random_graph::draw(seed, 6);
        const std::vector<std::string> groups = random_graph::groups_of(plan);
        if (groups.size() < 2) continue;
        random_graph::outcome outcome;
        seeded_random random(seed);
        simulated_run all(
            random_graph::config_text(plan, [](const auto& group) { return "loop://" + group; }),
            {.batch_bytes = 64 + random.below(1000), .window_bytes = 64 + random.below(4000)},
            [&](graph& g, const process_id&) { random_graph::build(g, plan, outcome, true); },
            {.seed = seed});
        all.start_all();
        all.net.run_for(std::chrono::microseconds(random.below(30000)));
        const std::size_t killed = random.below(groups.size());
        all.net.kill(groups[killed]);
        all.run_until_idle();
        ASSERT_TRUE(all.over()) << "seed " << seed;
        for (std::size_t i = 0; i < all.processes.size(); ++i)
            if (i != killed) {
                ASSERT_NE(all.failure_of(i).find("group " + groups[killed]), std::string::npos)
                    << "seed " << seed << ", " << groups[killed] << " was killed, and "
                    << all.processes[i]->label << " says: " << all.failure_of(i);
            }
    }
}

TEST_F(broken_run, a_group_that_is_silent_for_too_long_ends_the_others_with_its_name) {
    run_until_idle([](int n) { return n; },
                   [](simulated_run& all) {
                       all.net.run_for(200ms);
                       all.net.cut("G1");
                       all.net.run_for(60s);
                   });
    EXPECT_EQ(failures_[0].rfind("lost contact with group G1 (", 0), 0u) << failures_[0];
    EXPECT_EQ(failures_[2].rfind("lost contact with group G1 (", 0), 0u) << failures_[2];
}

TEST_F(broken_run, a_node_that_throws_ends_every_group_with_its_words) {
    run_until_idle(
        [](int n) {
            if (n == 500) throw std::runtime_error("no more than 500");
            return n;
        },
        [](simulated_run&) {});
    EXPECT_EQ(failures_[1], "the node \"middle\" failed: no more than 500");
    for (std::size_t other : {0u, 2u}) {
        EXPECT_EQ(failures_[other].rfind("group G1 failed: ", 0), 0u) << failures_[other];
        EXPECT_NE(failures_[other].find("the node \"middle\" failed: no more than 500"),
                  std::string::npos);
    }
}

TEST_F(broken_run, whichever_operation_breaks_everything_still_ends) {
    for (std::uint64_t nth = 1; nth < 60; nth += 2) {
        failures_.clear();
        run_until_idle([](int n) { return n; },
                       [nth](simulated_run& all) {
                           all.net.fail_operation(nth);
                           all.net.run_for(100ms);
                           all.net.kill("G1");
                       });
    }
}

}  // namespace
}  // namespace amalgam::detail
