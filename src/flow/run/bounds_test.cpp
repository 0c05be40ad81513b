// Items held inside a graph: never more than the headers promise.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/accelerator.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

auto numbers_below(int end) {
    return [end](outlet<int>& out) {
        for (int i = 0; i < end; ++i)
            out.send(i);
    };
}

TEST(bounds, on_demand_never_gives_a_worker_more_than_it_was_told) {
    for (const std::size_t workers : {1u, 3u})
        for (const std::size_t most : {1u, 2u, 5u})
            for (const unsigned threads : {1u, 2u}) {
                graph g;
                std::atomic<std::size_t> sent{0}, done{0}, most_before{0};
                auto from = g.add_source<int>("from", [&](outlet<int>& out) {
                    for (int i = 0; i < 1000; ++i) {
                        out.send(i);
                        const std::size_t by_now = done;
                        most_before = std::max(most_before.load(), ++sent - by_now);
                    }
                });
                std::vector<block<int, void>> all;
                for (std::size_t i = 0; i < workers; ++i)
                    all.push_back(g.add_sink<int>("to" + std::to_string(i), [&](int n) {
                        for (int turn = 0; turn < n % 5; ++turn)
                            this_task::yield();
                        ++done;
                    }));
                g.pipeline(from, g.farm(all, on_demand(most)));
                run(g, {.threads = threads});
                EXPECT_EQ(done, 1000u);
                EXPECT_LE(most_before, workers * most) << workers << " of " << most;
            }
    EXPECT_EQ(on_demand(0).queue_items, 1u);
}

TEST(bounds, what_comes_back_is_taken_before_more_than_a_turn_from_outside) {
    struct item {
        int rounds = 0;
    };
    graph g;
    int waits = 0, most_waiting = 0, got = 0;
    auto from = g.add_source<item>("from", [](outlet<item>& out) {
        for (int i = 0; i < 5000; ++i)
            out.send({});
    });
    auto body = g.add_stage<item, item>("body", [&](item one) {
        most_waiting = std::max(most_waiting, waits);
        if (one.rounds != 0) --waits;
        if (++one.rounds < 4) ++waits;
        return one;
    });
    auto to = g.add_sink<item>("to", [&](item) { ++got; });
    g.pipeline(from, g.feedback(body, [](const item& one) { return one.rounds < 4; }), to);
    run(g, {.threads = 1});
    EXPECT_EQ(got, 5000);
    EXPECT_LE(most_waiting, 64) << "the items of a turn";
}

TEST(bounds, a_loop_holds_little_more_than_its_queues) {
    struct item {
        int rounds = 0;
    };
    for (const unsigned threads : {1u, 2u}) {
        graph g;
        std::atomic<int> entered{0}, left{0};
        int most = 0;
        auto from = g.add_source<item>("from", [](outlet<item>& out) {
            for (int i = 0; i < 5000; ++i)
                out.send({});
        });
        auto enter = g.add_stage<item, item>("enter", [&](item one) {
            if (one.rounds == 0) ++entered;
            most = std::max(most, entered - left);
            return one;
        });
        auto work =
            g.add_farm<item, item>("work", 2, [](item one) { return item{one.rounds + 1}; });
        auto loop =
            g.feedback(g.pipeline(enter, work), [](const item& one) { return one.rounds < 10; });
        g.pipeline(from, loop, g.add_sink<item>("to", [&](item) { ++left; }));
        run(g, {.threads = threads, .queue_items = 8});
        EXPECT_EQ(left, 5000);
        // One turn of new items, a queue before each worker and before the sink, and those being
        // processed.
        EXPECT_LE(most, 64 + 4 * 8 + 8);
    }
}

TEST(bounds, early_results_of_an_ordered_farm_are_no_more_than_its_queues_hold) {
    graph g;
    int early = 0, most_early = 0, got = 0;
    bool first_is_done = false;
    auto work = g.add_ordered_farm<int, int>("work", 3, [&](int n) {
        if (n == 0) {
            // One thread: everything has advanced as far as it can.
            for (int turn = 0; turn < 20000; ++turn)
                this_task::yield();
            first_is_done = true;
            most_early = early;
        } else if (!first_is_done) {
            ++early;
        }
        return n;
    });
    g.pipeline(g.add_source<int>("from", numbers_below(2000)), work,
               g.add_sink<int>("to", [&](int n) { EXPECT_EQ(n, got++); }));
    run(g, {.threads = 1, .queue_items = 8});
    EXPECT_EQ(got, 2000);
    EXPECT_GT(most_early, 8) << "the others do not wait for the first";
    EXPECT_LE(most_early, 3 * 8);
}

TEST(bounds, who_offloads_more_than_an_accelerator_holds_waits) {
    graph g;
    accelerator<int, int> work(g, g.add_stage<int, int>("work", [](int n) { return n; }),
                               {.queue_items = 4});
    std::atomic<int> offloaded{0};
    std::jthread feeds([&] {
        for (int i = 0; i < 2000; ++i) {
            work.offload(i);
            ++offloaded;
        }
        work.finish();
    });
    int collected = 0, most_ahead = 0;
    while (offloaded < 8)
        std::this_thread::yield();
    while (work.collect()) {
        ++collected;
        most_ahead = std::max(most_ahead, offloaded - collected);
    }
    EXPECT_EQ(collected, 2000);
    // Two channels, two queues, and one item held by each of five.
    EXPECT_LE(most_ahead, 4 * 4 + 5);
}

TEST(all_to_all, each_sender_takes_turns_by_itself) {
    struct listens : sink<int> {
        explicit listens(std::vector<std::vector<int>>& into) : got(into) {}
        void consume(int n, std::size_t from) { got.at(from).push_back(n); }
        void end_of_stream(std::size_t) { ++ended; }
        void end() { EXPECT_EQ(ended, 2) << "it comes when all have ended"; }
        std::vector<std::vector<int>>& got;
        int ended = 0;
    };
    graph g;
    std::vector<block<void, int>> left;
    for (int i = 0; i < 2; ++i)
        left.push_back(g.add_source<int>("from" + std::to_string(i), numbers_below(300)));
    std::vector<std::vector<std::vector<int>>> got(3, std::vector<std::vector<int>>(2));
    std::vector<block<int, void>> right;
    for (std::size_t i = 0; i < 3; ++i)
        right.push_back(g.add<listens>("to" + std::to_string(i), got[i]));
    g.all_to_all(left, right);
    run(g);
    for (std::size_t worker = 0; worker < 3; ++worker)
        for (const std::vector<int>& its : got[worker]) {
            ASSERT_EQ(its.size(), 100u);
            for (std::size_t i = 0; i < its.size(); ++i)
                ASSERT_EQ(its[i], static_cast<int>(3 * i + worker));
        }
}

}  // namespace
}  // namespace amalgam
