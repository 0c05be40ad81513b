// Nodes that catch exceptions of send(), and continue.
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/flow/run.hpp>

#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

/// Every third one fails to be copied or serialized.
struct picky {
    picky() = default;
    explicit picky(int number) : id(number), text(std::to_string(number)) {}
    picky(picky&&) = default;
    picky(const picky& other) { *this = other; }
    picky& operator=(picky&&) = default;
    picky& operator=(const picky& other) {
        id = other.id;
        if (other.is_refused()) throw std::runtime_error("refused");
        text = other.text;
        return *this;
    }
    bool is_refused() const { return id % 3 == 2; }

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(id);
        if (is_refused()) throw std::runtime_error("refused");
        archive(text);
    }

    int id = 0;
    std::string text;
};

/// Number of exceptions caught.
int send_what_can_be_sent(outlet<picky>& out, int count) {
    int refused = 0;
    for (int i = 0; i < count; ++i) {
        const picky item(i);
        try {
            out.send(item);
        } catch (const std::runtime_error&) {
            ++refused;
        }
    }
    return refused;
}

void expect_all_others(const std::vector<picky>& got, int count) {
    int next = 0;
    for (const picky& item : got) {
        if (next % 3 == 2) ++next;
        ASSERT_EQ(item.id, next);
        ASSERT_EQ(item.text, std::to_string(next));
        ++next;
    }
    EXPECT_EQ(got.size(), static_cast<std::size_t>(count - count / 3));
}

TEST(refused_item, leaves_nothing_of_itself_in_a_batch) {
    for (const std::size_t batch_bytes : {16u, 100u, 100000u}) {
        int refused = 0;
        std::vector<picky> got;
        simulated_run all(
            two_groups, {.batch_bytes = batch_bytes}, [&](graph& g, const process_id&) {
                auto from = g.add_source<picky>(
                    "from", [&](outlet<picky>& out) { refused = send_what_can_be_sent(out, 300); });
                auto to =
                    g.add_sink<picky>("to", [&](picky item) { got.push_back(std::move(item)); });
                g.pipeline(from, to);
                g.group("G0").add(from);
                g.group("G1").add(to);
            });
        all.start_all();
        all.run_until_idle();
        EXPECT_TRUE(all.over());
        EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
        EXPECT_EQ(refused, 100);
        expect_all_others(got, 300);
    }
}

TEST(refused_item, is_not_left_in_a_queue) {
    std::vector<picky> got;
    graph g;
    g.pipeline(
        g.add_source<picky>(
            "from", [](outlet<picky>& out) { EXPECT_EQ(send_what_can_be_sent(out, 300), 100); }),
        g.add_sink<picky>("to", [&](picky item) { got.push_back(std::move(item)); }));
    run(g);
    expect_all_others(got, 300);
}

/// A loop of two nodes. The first sends everything three times as copies: unchanged, as a refused
/// item, and as one that leaves the loop at once.
block<picky, picky> loop_that_refuses(graph& g, std::vector<block<picky, picky>>& nodes) {
    nodes.push_back(g.add_stage<picky, picky>("first", [](const picky& item, outlet<picky>& out) {
        for (const int more : {1, 2, 3}) {
            const picky next(item.id - item.id % 3 + more);
            try {
                out.send(next);
            } catch (const std::runtime_error&) {
            }
        }
    }));
    nodes.push_back(g.add_stage<picky, picky>("second", [](picky item) { return item; }));
    return g.feedback(g.pipeline(nodes[0], nodes[1]),
                      [](const picky& item) { return item.id % 3 == 0 && item.id < 30; });
}

TEST(refused_item, does_not_count_as_one_inside_a_loop) {
    int got = 0;
    graph g;
    std::vector<block<picky, picky>> nodes;
    auto loop = loop_that_refuses(g, nodes);
    g.pipeline(g.add_source<picky>("from", [](outlet<picky>& out) { out.send(picky(0)); }), loop,
               g.add_sink<picky>("to", [&](const picky&) { ++got; }));
    run(g);
    EXPECT_EQ(got, 11);
}

TEST(refused_item, does_not_count_as_one_inside_a_loop_over_groups) {
    int got = 0;
    simulated_run all(two_groups, {}, [&](graph& g, const process_id&) {
        std::vector<block<picky, picky>> nodes;
        auto from = g.add_source<picky>("from", [](outlet<picky>& out) { out.send(picky(0)); });
        auto loop = loop_that_refuses(g, nodes);
        auto to = g.add_sink<picky>("to", [&](const picky&) { ++got; });
        g.pipeline(from, loop, to);
        g.group("G0").add(from, nodes[0], to);
        g.group("G1").add(nodes[1]);
    });
    all.start_all();
    all.run_until_idle();
    EXPECT_TRUE(all.over());
    EXPECT_EQ(all.failure_of(0) + all.failure_of(1), "");
    EXPECT_EQ(got, 11);
}

TEST(refused_item, at_the_start_of_a_chunk_leaves_no_gap_on_a_way_back) {
    growing_ring<picky> tested(false);
    std::vector<picky> got;
    const auto take_all = [&] {
        while (tested.has_item_now()) {
            got.push_back(std::move(*tested.front()));
            tested.pop();
        }
    };
    // A chunk holds 256 items; some are refused at its border.
    for (int i = 0; i < 256; ++i)
        tested.push(picky(0));
    const picky refused(2);
    for (int i = 0; i < 3; ++i)
        EXPECT_THROW(tested.push(refused), std::runtime_error);
    tested.push(picky(1));
    take_all();
    ASSERT_EQ(got.size(), 257u);
    EXPECT_EQ(got.back().text, "1");
}

}  // namespace
}  // namespace amalgam::detail
