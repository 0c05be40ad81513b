// Allocations of flow per item in steady state: none but the item's own.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>

#include "flow/run/simulated_run.hpp"
#include "memory/memory.hpp"

namespace amalgam::memory {
namespace {

constexpr int warm = 20000, counted = 20000;

/// Sends items, and records the allocations meanwhile, after a warm-up.
template <typename Item>
auto counting_source(const Item& item, std::uint64_t& asked) {
    return [item, &asked](outlet<Item>& out) {
        for (int i = 0; i < warm; ++i)
            out.send(item);
        const std::uint64_t before = allocations();
        for (int i = 0; i < counted; ++i)
            out.send(item);
        asked = allocations() - before;
    };
}

TEST(steady_flow, items_between_nodes_of_a_process_take_no_memory) {
    std::uint64_t asked = 1;
    graph g;
    const auto same = [](int n) { return n; };
    const auto key = by_key([](const int& n) { return n; });
    g.pipeline(
        g.add_source<int>("from", counting_source(1, asked)),
        g.add_farm<int, int>("turns", 2, same),
        g.add_farm<int, int>("demand", 2, same, on_demand(2)),
        g.add_farm<int, int>("keys", 2, same, key),
        g.combine(g.add_stage<int, int>("one", same), g.add_stage<int, int>("two", same)),
        g.farm(std::vector{g.add_sink<int>("to0", [](int) {}), g.add_sink<int>("to1", [](int) {})},
               broadcast));
    run(g, {.threads = 1, .queue_items = 16});
    EXPECT_EQ(asked, 0u);
}

TEST(steady_flow, text_that_is_taken_by_reference_takes_no_memory) {
    struct passes : stage<std::string, std::string> {
        void process(const std::string& text, outlet<std::string>& out) { out.send(text); }
    };
    struct looks : sink<std::string> {
        void consume(const std::string& text) { EXPECT_EQ(text.size(), 200u); }
    };
    std::uint64_t asked = 1;
    graph g;
    g.pipeline(g.add_source<std::string>("from", counting_source(std::string(200, 'x'), asked)),
               g.add<passes>("passes"), g.add<looks>("looks"));
    run(g, {.threads = 1, .queue_items = 16});
    EXPECT_EQ(asked, 0u);
}

TEST(steady_flow, items_that_join_a_batch_take_no_memory) {
    std::uint64_t asked = 1;
    detail::simulated_run all(
        R"({"groups": {"G0": {"endpoint": "loop://G0"}, "G1": {"endpoint": "loop://G1"}}})", {},
        [&](graph& g, const detail::process_id&) {
            auto from = g.add_source<std::string>("from", [&](outlet<std::string>& out) {
                const std::string text(100, 'x');
                for (int i = 0; i < 10; ++i)  // The first is sent by itself.
                    out.send(text);
                const std::uint64_t before = allocations();
                for (int i = 0; i < 1000; ++i)
                    out.send(text);
                asked = allocations() - before;
            });
            auto to = g.add_sink<std::string>("to", [](const std::string&) {});
            g.pipeline(from, to);
            g.group("G0").add(from);
            g.group("G1").add(to);
        });
    all.start_all();
    all.run_until_idle();
    EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
    EXPECT_EQ(asked, 0u);
}

}  // namespace
}  // namespace amalgam::memory
