// Items between groups: how they arrive, and how many are in flight.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/pooled.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

const char* const source_and_sink = R"({"groups": {"G0": {"endpoint": "loop://G0"},
                                                  "G1": {"endpoint": "loop://G1"}}})";

/// Items "0" to "99", as received by another group.
template <typename Item, typename Make>
std::vector<std::string> texts_that_cross(Make make) {
    std::vector<std::string> got;
    simulated_run all(source_and_sink, {}, [&](graph& g, const process_id&) {
        auto from = g.add_source<Item>("from", [make](outlet<Item>& out) {
            for (int i = 0; i < 100; ++i)
                out.send(make(std::to_string(i)));
        });
        auto to = g.add_sink<Item>("to", [&](Item one) { got.push_back(*one); });
        g.pipeline(from, to);
        g.group("G0").add(from);
        g.group("G1").add(to);
    });
    all.start_all();
    all.run_until_idle();
    EXPECT_TRUE(all.over());
    EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
    return got;
}

TEST(group_items, that_are_shared_or_pooled_cross_as_what_they_hold) {
    std::vector<std::string> expected;
    for (int i = 0; i < 100; ++i)
        expected.push_back(std::to_string(i));
    const auto share = [](const std::string& text) {
        return std::make_shared<const std::string>(text);
    };
    EXPECT_EQ(texts_that_cross<std::shared_ptr<const std::string>>(share), expected);
    item_pool<std::string> pool;
    const auto take = [&](const std::string& text) {
        pooled<std::string> one = pool.get();
        *one = text;
        return one;
    };
    EXPECT_EQ(texts_that_cross<pooled<std::string>>(take), expected);
    EXPECT_LE(pool.size(), 1u) << "each came back before the next was taken";
}

TEST(group_items, that_are_larger_than_all_windows_arrive_one_by_one) {
    int sent = 0, taken = 0, most_ahead = 0;
    simulated_run all(source_and_sink, {.batch_bytes = 100, .window_bytes = 1000},
                      [&](graph& g, const process_id&) {
                          auto from = g.add_source<std::string>("from", [&](auto& out) {
                              for (; sent < 100; ++sent)
                                  out.send(std::string(10000, static_cast<char>(sent)));
                          });
                          auto to = g.add_sink<std::string>("to", [&](std::string text) {
                              EXPECT_EQ(text, std::string(10000, static_cast<char>(taken)));
                              most_ahead = std::max(most_ahead, sent - taken);
                              ++taken;
                              this_task::sleep_for(1ms);
                          });
                          g.pipeline(from, to);
                          g.group("G0").add(from);
                          g.group("G1").add(to);
                      });
    all.start_all();
    all.run_until_idle();
    EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
    EXPECT_EQ(taken, 100);
    // The one in use, one in flight, and one that the sender has written.
    EXPECT_LE(most_ahead, 3);
}

TEST(group_items, on_demand_are_no_more_before_a_worker_than_it_was_told) {
    for (const std::size_t most : {1u, 3u}) {
        int sent = 0, done = 0, most_before = 0;
        std::vector<int> taken(2);
        simulated_run all(
            R"({"groups": {"G0": {"endpoint": "loop://a"}, "G1": {"endpoint": "loop://b"},
                                      "G2": {"endpoint": "loop://c"}}})",
            {}, [&](graph& g, const process_id&) {
                auto from = g.add_source<int>("from", [&](outlet<int>& out) {
                    for (int i = 0; i < 400; ++i) {
                        out.send(i);
                        most_before = std::max(most_before, ++sent - done);
                    }
                });
                std::vector<block<int, void>> workers;
                for (std::size_t w = 0; w < 2; ++w)
                    workers.push_back(g.add_sink<int>("to" + std::to_string(w), [&, w](int) {
                        this_task::sleep_for(w == 0 ? 1ms : 3ms);
                        ++taken[w];
                        ++done;
                    }));
                g.pipeline(from, g.farm(workers, on_demand(most)));
                g.group("G0").add(from);
                g.group("G1").add(workers[0]);
                g.group("G2").add(workers[1]);
            });
        all.start_all();
        all.run_until_idle();
        EXPECT_EQ(all.failure_of(0) + all.failure_of(1) + all.failure_of(2), "");
        EXPECT_EQ(done, 400);
        EXPECT_LE(most_before, static_cast<int>(2 * most));
        EXPECT_GT(taken[0], taken[1]) << "who is done sooner gets more";
    }
}

}  // namespace
}  // namespace amalgam::detail
