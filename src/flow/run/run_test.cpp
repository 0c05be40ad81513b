#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/flow/run.hpp>

#include "flow/graph/random_pipeline.hpp"

namespace amalgam {
namespace {

auto count_to(int end) {
    return [end](outlet<int>& out) {
        for (int i = 0; i < end; ++i)
            out.send(i);
    };
}

TEST(run, passes_every_item_in_order_through_every_node) {
    graph g;
    std::vector<long> got;
    auto from = g.add_source<int>("from", count_to(5000));
    auto twice = g.add_stage<int, long>("twice", [](int n) { return 2L * n; });
    auto to = g.add_sink<long>("to", [&got](long n) { got.push_back(n); });
    g.pipeline(from, twice, to);
    run(g);
    ASSERT_EQ(got.size(), 5000u);
    for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], static_cast<long>(2 * i));
}

TEST(run, gives_what_a_plain_loop_gives_whatever_the_pipeline_and_the_threads) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        auto plan = random_pipeline::draw(seed, false);
        graph g;
        std::vector<random_pipeline::item> results;
        random_pipeline::build(g, plan, results);
        run(g, {.threads = 1 + static_cast<unsigned>(seed % 3), .queue_items = 1 + seed % 5});
        ASSERT_EQ(results, random_pipeline::expected(plan)) << "seed " << seed;
    }
}

TEST(run, moves_items_that_cannot_be_copied) {
    graph g;
    int sum = 0;
    auto from = g.add_source<std::unique_ptr<int>>("from", [](auto& out) {
        for (int i = 0; i < 100; ++i)
            out.send(std::make_unique<int>(i));
    });
    auto to = g.add_sink<std::unique_ptr<int>>("to", [&sum](std::unique_ptr<int> n) { sum += *n; });
    g.pipeline(from, to);
    run(g);
    EXPECT_EQ(sum, 4950);
}

struct told {
    std::vector<std::string>& log;
    std::string name;
    void say(const char* what) const { log.push_back(name + " " + what); }
};
struct talking_source : source<int>, told {
    explicit talking_source(std::vector<std::string>& to) : told{to, "source"} {}
    void start(const place&) { say("start"); }
    void generate(outlet<int>& out) { out.send(1); }
    void end() { say("end"); }
};
struct talking_stage : stage<int, int>, told {
    explicit talking_stage(std::vector<std::string>& to) : told{to, "stage"} {}
    void start(const place& here) {
        say("start");
        EXPECT_EQ(here.group, "");
        EXPECT_EQ(here.replicas, 1u);
    }
    void process(int n, outlet<int>& out) {
        say("item");
        out.send(n);
    }
    void end(outlet<int>& out) {
        say("end");
        out.send(2);
    }
};
struct talking_sink : sink<int>, told {
    explicit talking_sink(std::vector<std::string>& to) : told{to, "sink"} {}
    void start(const place&) { say("start"); }
    void consume(int n) { say(n == 1 ? "item 1" : "item 2"); }
    void end() { say("end"); }
};

TEST(run, hooks_come_once_each_around_the_items) {
    graph g;
    std::vector<std::string> log;
    auto from = g.add<talking_source>("from", log);
    auto middle = g.add<talking_stage>("middle", log);
    auto to = g.add<talking_sink>("to", log);
    g.pipeline(from, middle, to);
    run(g, {.threads = 1});  // One thread, so one log.
    auto of = [&log](const std::string& name) {
        std::vector<std::string> own;
        for (const std::string& line : log)
            if (line.rfind(name, 0) == 0) own.push_back(line.substr(name.size() + 1));
        return own;
    };
    EXPECT_EQ(of("source"), (std::vector<std::string>{"start", "end"}));
    EXPECT_EQ(of("stage"), (std::vector<std::string>{"start", "item", "end"}));
    EXPECT_EQ(of("sink"), (std::vector<std::string>{"start", "item 1", "item 2", "end"}));
}

TEST(run, a_source_that_nobody_keeps_up_with_waits) {
    graph g;
    std::atomic<int> sent{0};
    int most_ahead = 0;
    auto from = g.add_source<int>("from", [&sent](outlet<int>& out) {
        for (int i = 0; i < 1000; ++i) {
            out.send(i);
            ++sent;
        }
    });
    auto to = g.add_sink<int>("to", [&](int n) { most_ahead = std::max(most_ahead, sent - n); });
    g.pipeline(from, to);
    run(g, {.threads = 2, .queue_items = 8});
    EXPECT_LE(most_ahead, 8 + 2);
}

TEST(run, a_node_that_throws_ends_the_run_with_its_name_and_text) {
    for (unsigned threads : {1u, 2u}) {
        graph g;
        auto from = g.add_source<int>("from", [](outlet<int>& out) {
            for (int i = 0;; ++i)  // Endless: it is stopped.
                out.send(i);
        });
        auto middle = g.add_stage<int, int>("middle", [](int n) {
            if (n == 5000) throw std::runtime_error("no more than 5000");
            return n;
        });
        auto to = g.add_sink<int>("to", [](int) {});
        g.pipeline(from, middle, to);
        try {
            run(g, {.threads = threads});
            FAIL() << "it did not throw";
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::handler_failed);
            EXPECT_STREQ(why.what(), "the node \"middle\" failed: no more than 5000");
        }
    }
}

TEST(run, a_graph_that_does_not_fit_starts_nothing) {
    graph g;
    bool started = false;
    auto from = g.add_source<int>("from", [&started](outlet<int>&) { started = true; });
    auto to = g.add_sink<int>("to", [](int) {});
    g.pipeline(from, to);
    g.group("G1").add(from);
    try {
        run(g);
        FAIL() << "it did not throw";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_EQ(std::string(why.what()).rfind("the node \"to\" is in no group", 0), 0u);
    }
    EXPECT_FALSE(started);
}

/// Where a node ran: its thread, and the cores that thread is bound to.
struct seen_place {
    std::thread::id thread;
    int cores = 0;

    void look() {
        cpu_set_t set;
        ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
        cores = CPU_COUNT(&set);
        thread = std::this_thread::get_id();
    }
};

TEST(run, nodes_of_a_pool_have_threads_of_their_own) {
    graph g;
    seen_place from_at, first_at, second_at, pinned_at;
    auto from = g.add_source<int>("from", [&](outlet<int>& out) {
        from_at.look();
        out.send(1);
    });
    auto look = [](seen_place& into) {
        return [&into](int n) {
            into.look();
            return n;
        };
    };
    auto first = g.add_stage<int, int>("first", look(first_at));
    auto second = g.add_stage<int, int>("second", look(second_at));
    auto pinned = g.add_sink<int>("pinned", [&](int) { pinned_at.look(); });
    g.pipeline(from, first, second, pinned);
    g.in_pool("io", first, second);
    g.pin(0, pinned);
    run(g, {.threads = 1});
    EXPECT_EQ(first_at.thread, second_at.thread);
    EXPECT_NE(from_at.thread, first_at.thread);
    EXPECT_NE(from_at.thread, pinned_at.thread);
    EXPECT_NE(first_at.thread, pinned_at.thread);
    EXPECT_EQ(pinned_at.cores, 1);

    run(g, {.threads = 1, .pools = {{"io", {.threads = 2, .cpus = {0, 0}}}}});
    EXPECT_NE(first_at.thread, second_at.thread);
    EXPECT_EQ(first_at.cores, 1);
    EXPECT_EQ(second_at.cores, 1);
}

TEST(run, says_that_a_core_does_not_exist) {
    graph g;
    auto from = g.add_source<int>("from", count_to(1));
    g.pipeline(from, g.add_sink<int>("to", [](int) {}));
    g.pin(100000, from);
    try {
        run(g);
        FAIL();
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::invalid) << wrong.what();
    }
}

TEST(run, reports_what_each_node_did) {
    graph g;
    auto from = g.add_source<int>("from", count_to(2000));
    auto slow = g.add_stage<int, int>("slow", [](int n) {
        for (const std::uint64_t begin = cycles(); cycles() - begin < 100000;) {
        }
        return n;
    });
    auto next = g.add_stage<int, int>("next", [](int n) { return n; });
    auto to = g.add_sink<int>("to", [](int) {});
    g.pipeline(from, g.combine(slow, next), to);
    const run_report report = run(g, {.threads = 2, .queue_items = 64});
    ASSERT_EQ(report.nodes.size(), 4u);
    for (const node_report& node : report.nodes) {
        EXPECT_EQ(node.process, "");
        EXPECT_EQ(node.taken, node.name == "from" ? 0u : 2000u) << node.name;
        EXPECT_EQ(node.given, node.name == "to" ? 0u : 2000u) << node.name;
    }
    EXPECT_EQ(report.nodes[2].inside, "slow");
    EXPECT_GT(report.nodes[0].waited_for_output, 0);
    EXPECT_GT(report.nodes[3].waited_for_input, 0);
    EXPECT_EQ(report.bottleneck().rfind("\"slow\", busy ", 0), 0u) << report.bottleneck();
    ASSERT_EQ(report.channels.size(), 3u);
    EXPECT_EQ(report.channels[0].waiting, 0u);
    EXPECT_GT(report.channels[0].most_waiting, 0u);
    EXPECT_LE(report.channels[0].most_waiting, 64u);
    EXPECT_FALSE(report.channels[0].between_groups);
}

TEST(run, reports_every_item_of_nodes_that_several_send_to) {
    for (const int items : {1, 7, 1003}) {
        graph g;
        auto from = g.add_source<int>("from", count_to(items));
        auto work = g.add_farm<int, int>("work", 3, [](int n) { return n + 1; });
        auto twice = g.add_stage<int, int>("twice", [](int n) { return n + 1; });
        auto to = g.add_sink<int>("to", [](int) {});
        g.pipeline(from, work, g.feedback(twice, [](const int& n) { return n < 0; }), to);
        const run_report report = run(g);
        for (const node_report& node : report.nodes)
            if (node.name == "twice" || node.name == "to") {
                EXPECT_EQ(node.taken, static_cast<std::uint64_t>(items)) << node.name;
            }
        for (const channel_report& channel : report.channels)
            EXPECT_EQ(channel.waiting, 0u) << channel.from << " -> " << channel.to;
    }
}

TEST(run, options_that_cannot_be_are_refused_by_name) {
    graph g;
    g.pipeline(g.add_source<int>("from", count_to(1)), g.add_sink<int>("to", [](int) {}));
    const std::pair<const char*, run_options> wrong[] = {
        {"queue_items is 0", {.queue_items = 0}},
        {"batch_bytes is 0", {.batch_bytes = 0}},
        {"batch_bytes is 4294967296", {.batch_bytes = std::size_t{1} << 32}},
        {"window_bytes is 0", {.window_bytes = 0}},
        {"threads is 1025, expected a number from 1 to 1024", {.threads = 1025}},
        {"pools[\"disk\"].threads is 4294967295", {.pools = {{"disk", {.threads = ~0u}}}}},
        {"pools[\"disk\"].threads is 0", {.pools = {{"disk", {.threads = 0}}}}},
        {"silence_limit is -1 ms", {.silence_limit = std::chrono::milliseconds(-1)}},
    };
    for (const auto& [sentence, options] : wrong) {
        try {
            run(g, options);
            ADD_FAILURE() << sentence;
        } catch (const error& refused) {
            EXPECT_EQ(refused.code().code, errc::invalid);
            EXPECT_NE(std::string(refused.what()).find(sentence), std::string::npos)
                << refused.what();
        }
    }
}

TEST(run, a_graph_that_was_moved_from_says_so) {
    graph g;
    g.pipeline(g.add_source<int>("from", count_to(1)), g.add_sink<int>("to", [](int) {}));
    const graph other = std::move(g);
    for (const auto& use : std::initializer_list<std::function<void()>>{
             [&] { run(g); }, [&] { start(g).wait(); }, [&] { (void)g.dot(); },
             [&] { (void)g.json(); }, [&] { (void)g.group("G1"); },
             [&] { g.add_sink<int>("more", [](int) {}); },
             [&] { (void)g.farm(std::vector<block<int, int>>{}); }}) {
        try {
            use();
            ADD_FAILURE();
        } catch (const error& refused) {
            EXPECT_EQ(refused.code().code, errc::invalid) << refused.what();
        }
    }
    EXPECT_EQ(run_main(g), 1);
}

TEST(run, a_graph_runs_again) {
    graph g;
    int items = 0;
    auto from = g.add_source<int>("from", count_to(10));
    auto to = g.add_sink<int>("to", [&items](int) { ++items; });
    g.pipeline(from, to);
    run(g);
    run(g);
    EXPECT_EQ(items, 20);
}

TEST(run, hundreds_of_stages_fit_on_one_thread) {
    graph g;
    std::vector<int> got;
    auto so_far = g.pipeline(g.add_source<int>("from", count_to(50)));
    for (int i = 0; i < 300; ++i)
        so_far = g.pipeline(so_far, g.add_stage<int, int>("stage" + std::to_string(i),
                                                          [](int n) { return n + 1; }));
    g.pipeline(so_far, g.add_sink<int>("to", [&got](int n) { got.push_back(n); }));
    run(g, {.threads = 1, .queue_items = 4});
    ASSERT_EQ(got.size(), 50u);
    EXPECT_EQ(got.front(), 300);
    EXPECT_EQ(got.back(), 349);
}

}  // namespace
}  // namespace amalgam
