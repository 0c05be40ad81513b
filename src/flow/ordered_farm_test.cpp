#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

auto count_to(int end) {
    return [end](outlet<int>& out) {
        for (int i = 0; i < end; ++i)
            out.send(i);
    };
}

/// Lets others overtake, by a number of turns that depends on the item.
void dawdle(int n) {
    for (int i = 0; i < n * 7919 % 13; ++i)
        this_task::yield();
}

TEST(ordered_farm, gives_results_in_the_order_of_the_items) {
    for (const unsigned threads : {1u, 2u, 3u}) {
        graph g;
        std::vector<long> got;
        auto work = g.add_ordered_farm<int, long>("work", 3, [](int n) {
            dawdle(n);
            return 2L * n;
        });
        g.pipeline(g.add_source<int>("from", count_to(3000)), work,
                   g.add_sink<long>("to", [&](long n) { got.push_back(n); }));
        for (int again = 0; again < 2; ++again) {
            got.clear();
            run(g, {.threads = threads, .queue_items = 16});
            ASSERT_EQ(got.size(), 3000u);
            for (std::size_t i = 0; i < got.size(); ++i)
                ASSERT_EQ(got[i], static_cast<long>(2 * i));
        }
    }
}

/// Gives an item as often as its value says, and the number of them at its end.
struct repeat : stage<int, std::string> {
    void process(int n, outlet<std::string>& out) {
        dawdle(n);
        for (int i = 0; i < n % 4; ++i)
            out.send(std::to_string(n));
        ++taken_;
    }
    void end(outlet<std::string>& out) { out.send_to(0, "took " + std::to_string(taken_)); }
    int taken_ = 0;
};

TEST(ordered_farm, gives_all_that_a_worker_makes_of_an_item_before_the_next) {
    graph g;
    std::vector<std::string> got, expected;
    g.pipeline(g.add_source<int>("from", count_to(100)), g.add_ordered_farm<repeat>("work", 4),
               g.add_sink<std::string>("to", [&](std::string text) { got.push_back(text); }));
    run(g, {.threads = 2});
    for (int n = 0; n < 100; ++n)
        for (int i = 0; i < n % 4; ++i)
            expected.push_back(std::to_string(n));
    for (int i = 0; i < 4; ++i)
        expected.push_back("took 25");
    EXPECT_EQ(got, expected);
}

TEST(ordered_farm, moves_items_that_cannot_be_copied) {
    graph g;
    int next = 0;
    g.pipeline(g.add_source<std::unique_ptr<int>>("from",
                                                  [](auto& out) {
                                                      for (int i = 0; i < 100; ++i)
                                                          out.send(std::make_unique<int>(i));
                                                  }),
               g.add_ordered_farm<std::unique_ptr<int>, std::unique_ptr<int>>(
                   "work", 2, [](std::unique_ptr<int> n) { return n; }),
               g.add_sink<std::unique_ptr<int>>(
                   "to", [&](std::unique_ptr<int> n) { EXPECT_EQ(*n, next++); }));
    run(g);
    EXPECT_EQ(next, 100);
}

TEST(ordered_farm, a_worker_has_no_others_to_send_to) {
    graph g;
    g.pipeline(g.add_source<int>("from", count_to(1)),
               g.add_ordered_farm<int, int>("work", 2,
                                            [](int n, outlet<int>& out) {
                                                EXPECT_EQ(out.workers(), 1u);
                                                out.send_to(1, n);
                                            }),
               g.add_sink<int>("to", [](int) {}));
    try {
        run(g);
        FAIL();
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::handler_failed);
    }
}

}  // namespace
}  // namespace amalgam
