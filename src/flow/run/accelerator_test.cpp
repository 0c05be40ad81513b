#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/accelerator.hpp>

namespace amalgam {
namespace {

errc code_of_wait(running_graph& running) {
    try {
        running.wait();
    } catch (const error& wrong) {
        return wrong.code().code;
    }
    return errc::ok;
}

void offload_for_ever(accelerator<int, int>& work) {
    for (;;)
        work.offload(5);
}

TEST(accelerator, takes_items_and_gives_results) {
    graph g;
    accelerator<int, long> squares(
        g, g.add_farm<int, long>("square", 3, [](int n) { return long{n} * n; }),
        {.threads = 2, .queue_items = 8});
    std::jthread feed([&] {
        for (int i = 0; i < 2000; ++i)
            squares.offload(i);
        squares.finish();
    });
    std::multiset<long> got, expected;
    while (std::optional<long> result = squares.collect())
        got.insert(*result);
    squares.wait();
    for (int i = 0; i < 2000; ++i)
        expected.insert(long{i} * i);
    EXPECT_EQ(got, expected);
    EXPECT_THROW(squares.offload(1), error);
}

TEST(accelerator, is_used_by_several_threads_at_once) {
    graph g;
    accelerator<int, int> next(g, g.add_farm<int, int>("next", 2, [](int n) { return n + 1; }),
                               {.threads = 2, .queue_items = 4});
    std::vector<std::multiset<int>> got(2);
    {
        std::vector<std::jthread> all;
        std::latch fed(3);
        for (int which = 0; which < 3; ++which)
            all.emplace_back([&, which] {
                for (int i = 0; i < 500; ++i)
                    next.offload(500 * which + i);
                fed.count_down();
            });
        for (std::multiset<int>& its : got)
            all.emplace_back([&] {
                while (std::optional<int> one = next.collect())
                    its.insert(*one);
            });
        fed.wait();
        next.finish();
    }
    next.wait();
    std::multiset<int> expected;
    for (int i = 1; i <= 1500; ++i)
        expected.insert(i);
    got[0].merge(got[1]);
    EXPECT_EQ(got[0], expected);
}

TEST(accelerator, answers_one_item_at_a_time) {
    graph g;
    accelerator<int, int> next(g, g.add_stage<int, int>("next", [](int n) { return n + 1; }));
    int n = 0;
    while (n < 200) {
        next.offload(n);
        n = next.collect().value();
    }
    EXPECT_EQ(next.try_collect(), std::nullopt);
    next.finish();
    EXPECT_EQ(next.collect(), std::nullopt);
    next.wait();
}

TEST(accelerator, that_fails_gives_no_more_and_says_why) {
    graph g;
    accelerator<int, int> work(g, g.add_stage<int, int>("work", [](int n) {
        if (n == 3) throw std::runtime_error("three is too much");
        return n;
    }));
    for (int i = 0; i < 4; ++i)
        work.offload(i);
    while (work.collect()) {
    }
    // Both ends get the error, one after the other.
    EXPECT_THROW(offload_for_ever(work), error);
    try {
        work.wait();
        FAIL();
    } catch (const error& wrong) {
        EXPECT_NE(std::string(wrong.what()).find("three is too much"), std::string::npos);
    }
}

TEST(accelerator, whose_run_is_refused_waits_for_nothing_and_says_why) {
    graph g;
    g.add_source<int>("loose", [](outlet<int>& out) { out.send(1); });
    accelerator<int, int> work(g, g.add_stage<int, int>("work", [](int n) { return n; }),
                               {.queue_items = 2});
    EXPECT_EQ(work.collect(), std::nullopt);
    EXPECT_THROW(offload_for_ever(work), error);
    try {
        work.wait();
        FAIL();
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::invalid);
        EXPECT_NE(std::string(wrong.what()).find("\"loose\""), std::string::npos);
    }
}

TEST(channel_nodes, of_a_run_that_is_refused_close_their_channels_once) {
    struct counting : channel_sink<int> {
        counting(channel<int>& to, int& stops) : channel_sink(to), stops_(stops) {}
        void stop() noexcept {
            ++stops_;
            channel_sink::stop();
        }
        int& stops_;
    };
    int stops = 0;
    channel<int> from(1), to(1);
    graph g;
    g.pipeline(g.add<channel_source<int>>("from", from), g.add<counting>("to", to, stops));
    EXPECT_THROW(run(g, {.queue_items = 0}), error);
    EXPECT_TRUE(from.closed());
    EXPECT_TRUE(to.closed());
    EXPECT_EQ(stops, 1);
}

TEST(accelerator, that_goes_away_in_the_middle_leaves_nothing_behind) {
    graph g;
    accelerator<int, int> work(g, g.add_stage<int, int>("work", [](int n) { return n; }),
                               {.queue_items = 4});
    work.offload(1);
}

TEST(running_graph, is_stopped_by_its_program) {
    graph g;
    g.pipeline(g.add_source<int>("from",
                                 [](outlet<int>& out) {
                                     for (int i = 0;; ++i)
                                         out.send(i);
                                 }),
               g.add_sink<int>("to", [](int) {}));
    running_graph running = start(g);
    running.stop();
    EXPECT_EQ(code_of_wait(running), errc::canceled);
}

/// Counts how often it is stopped; throws at an item.
struct stopped_sink : sink<int> {
    explicit stopped_sink(std::atomic<int>& into) : stops(into) {}
    void consume(int n) {
        if (n == 100) throw std::runtime_error("a hundred is too much");
    }
    void stop() noexcept { ++stops; }
    std::atomic<int>& stops;
};

TEST(running_graph, tells_a_node_to_stop_once_however_often_its_run_is_ended_early) {
    for (const int items : {10, 1000}) {
        graph g;
        std::atomic<int> stops{0};
        auto from = g.add_source<int>("from", [&](outlet<int>& out) {
            for (int i = 0; i < items; ++i)
                out.send(i);
        });
        std::vector<block<int, void>> sinks{g.add<stopped_sink>("one", stops),
                                            g.add<stopped_sink>("other", stops)};
        g.pipeline(from, g.farm(sinks, broadcast));
        running_graph running = start(g);
        EXPECT_EQ(code_of_wait(running), items == 10 ? errc::ok : errc::handler_failed);
        EXPECT_EQ(stops, items == 10 ? 0 : 2) << "once for each of them, unless all is well";
        for (int i = 0; i < 2; ++i)
            running.stop();
        EXPECT_EQ(stops, items == 10 ? 0 : 2);
    }
}

TEST(running_graph, may_be_stopped_at_any_time_by_any_thread) {
    for (int round = 0; round < 50; ++round) {
        graph g;
        std::atomic<int> stops{0};
        channel<int> from(1);
        g.pipeline(g.add<channel_source<int>>("from", from), g.add<stopped_sink>("to", stops));
        running_graph running = start(g);
        std::vector<std::jthread> stop;
        for (int i = 0; i < 3; ++i)
            stop.emplace_back([&] { running.stop(); });
        if (round % 2 == 0) stop.clear();
        EXPECT_EQ(code_of_wait(running), errc::canceled);
        running.stop();
        EXPECT_EQ(code_of_wait(running), errc::canceled) << "it is said as often as it is asked";
        EXPECT_TRUE(from.closed());
        EXPECT_LE(stops, 1);
    }
}

TEST(running_graph, one_that_was_moved_from_is_refused_and_stops_nothing) {
    graph g;
    g.pipeline(g.add_source<int>("from", [](outlet<int>& out) { out.send(1); }),
               g.add_sink<int>("to", [](int) {}));
    running_graph first = start(g);
    running_graph second = std::move(first);
    first.stop();
    EXPECT_EQ(code_of_wait(first), errc::invalid);
    second.wait();
}

TEST(running_graph, is_refused_while_another_run_of_the_graph_goes_on_which_that_does_not_end) {
    graph g;
    channel<int> from(1), to(1);
    g.pipeline(g.add<channel_source<int>>("from", from), g.add<channel_sink<int>>("to", to));
    running_graph first = start(g);
    running_graph second = start(g);
    EXPECT_EQ(code_of_wait(second), errc::invalid);
    EXPECT_THROW(run(g), error);
    from.push(7);
    EXPECT_EQ(to.pop(), 7);
    from.close();
    EXPECT_EQ(code_of_wait(first), errc::ok);
}

TEST(running_graph, may_start_again_when_it_has_ended) {
    graph g;
    int got = 0;
    g.pipeline(g.add_source<int>("from", [](outlet<int>& out) { out.send(1); }),
               g.add_sink<int>("to", [&](int n) { got += n; }));
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(code_of_wait(*std::make_unique<running_graph>(start(g))), errc::ok);
    EXPECT_EQ(got, 3);
}

TEST(running_graph, tells_what_does_not_fit_when_waited_for) {
    graph empty;
    running_graph running = start(empty);
    EXPECT_EQ(code_of_wait(running), errc::invalid);
}

}  // namespace
}  // namespace amalgam
