#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/pooled.hpp>
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

/// Yields a number of times that depends on the item, so that others overtake.
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

/// Emits an item as often as its value says, and their count at the end.
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

TEST(ordered_farm, moves_items_whose_copies_do_not_compile) {
    using list = std::vector<std::unique_ptr<int>>;
    graph g;
    int next = 0;
    auto work = g.add_ordered_farm<list, list>("work", 2, [](list l) { return l; });
    auto more = g.add_ordered_farm<list, list>(
        "more", 2, [](list l, outlet<list>& out) { out.send(std::move(l)); });
    g.pipeline(g.add_source<list>("from",
                                  [](outlet<list>& out) {
                                      for (int i = 0; i < 100; ++i) {
                                          list one;
                                          one.push_back(std::make_unique<int>(i));
                                          out.send(std::move(one));
                                      }
                                  }),
               work, more, g.add_farm<list, list>("farm", 1, [](list l) { return l; }),
               g.add_sink<list>("to", [&](list l) { EXPECT_EQ(*l.front(), next++); }));
    run(g);
    EXPECT_EQ(next, 100);
}

TEST(ordered_farm, takes_pooled_items) {
    using item = pooled<std::vector<int>>;
    item_pool<std::vector<int>> pool;
    graph g;
    int next = 0;
    const auto change = [](item one, outlet<item>& out) { out.send(std::move(one)); };
    g.pipeline(g.add_source<item>("from",
                                  [&](outlet<item>& out) {
                                      for (int i = 0; i < 100; ++i) {
                                          item one = pool.get();
                                          one->assign(1, i);
                                          out.send(std::move(one));
                                      }
                                  }),
               g.add_ordered_farm<item, item>("work", 2, [](item one) { return one; }),
               g.add_ordered_farm<item, item>("more", 2, change),
               g.add_sink<item>("to", [&](item one) { EXPECT_EQ(one->front(), next++); }));
    run(g);
    EXPECT_EQ(next, 100);
}

/// Error of an ordered farm's collector for results with these numbers.
std::string fault_of(const std::vector<std::uint64_t>& numbers) {
    detail::sort_items<int, int> collector;
    std::vector<int> kept;
    outlet<int> out(kept);
    collector.start({});
    try {
        for (const std::uint64_t number : numbers)
            collector.process({number, 0}, out, 0);
        collector.end(out);
    } catch (const error& wrong) {
        return wrong.what();
    }
    return "";
}

TEST(ordered_farm, that_holds_results_at_its_end_or_got_one_twice_fails) {
    EXPECT_EQ(fault_of({1, 0, 2}), "");
    EXPECT_EQ(fault_of({0, 2, 3}),
              "the items have ended, but result number 1 of an ordered farm never arrived; 2 later "
              "results wait for it");
    for (const auto& numbers : {std::vector<std::uint64_t>{0, 0}, {0, 2, 2}, {1, 0, 1}})
        EXPECT_NE(fault_of(numbers).find("arrived twice"), std::string::npos);
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
