#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/pooled.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {
namespace {

using text = std::vector<char>;

TEST(item_pool, gives_the_same_item_again_as_it_was_left) {
    item_pool<text> pool;
    pooled<text> first = pool.get();
    first->assign(100, 'a');
    const char* const memory = first->data();
    first = pooled<text>();
    pooled<text> again = pool.get();
    EXPECT_EQ(again->data(), memory);
    EXPECT_EQ(again->size(), 100u);
    EXPECT_EQ(pool.size(), 1u);
    pooled<text> other = pool.get();
    EXPECT_TRUE(other->empty());
    EXPECT_EQ(pool.size(), 2u);
}

TEST(item_pool, may_go_before_its_items) {
    std::optional<item_pool<text>> pool(std::in_place);
    pooled<text> kept = pool->get(), moved = pool->get();
    pool->get()->assign(10, 'x');
    kept->assign(3, 'k');
    pool.reset();
    moved = std::move(kept);
    EXPECT_EQ(moved->size(), 3u);
    EXPECT_FALSE(kept);  // NOLINT: what a move leaves is said to be empty.
}

TEST(item_pool, takes_items_back_from_another_thread) {
    item_pool<text> pool;
    for (int round = 0; round < 100; ++round) {
        std::vector<pooled<text>> out;
        for (int i = 0; i < 10; ++i)
            out.push_back(pool.get());
        std::jthread([taken = std::move(out)]() mutable { taken.clear(); });
    }
    EXPECT_EQ(pool.size(), 10u);
}

TEST(item_pool, needs_no_more_items_than_a_graph_holds) {
    item_pool<text> pool;
    graph g;
    std::size_t sum = 0;
    auto from = g.add_source<pooled<text>>("from", [&](auto& out) {
        for (int i = 0; i < 5000; ++i) {
            pooled<text> item = pool.get();
            item->assign(static_cast<std::size_t>(i % 7), 'x');
            out.send(std::move(item));
        }
    });
    auto to = g.add_sink<pooled<text>>("to", [&](pooled<text> item) { sum += item->size(); });
    g.pipeline(from, to);
    run(g, {.threads = 2, .queue_items = 16});
    EXPECT_EQ(sum, 14995u);  // 714 times 0 to 6, then 0 and 1.
    EXPECT_LE(pool.size(), 20u);
}

TEST(shared_items, are_broadcast_by_their_pointer) {
    using item = std::shared_ptr<const text>;
    graph g;
    const item one = std::make_shared<const text>(1000, 'x');
    std::vector<const text*> got(3);
    std::vector<block<item, void>> sinks;
    for (std::size_t i = 0; i < got.size(); ++i)
        sinks.push_back(g.add_sink<item>("to" + std::to_string(i),
                                         [&got, i](const item& it) { got[i] = it.get(); }));
    g.pipeline(g.add_source<item>("from", [&](outlet<item>& out) { out.send(one); }),
               g.farm(sinks, broadcast));
    run(g);
    EXPECT_EQ(got, std::vector<const text*>(3, one.get()));
    EXPECT_EQ(one.use_count(), 1) << "nobody holds it any more";
}

TEST(pooled, travels_as_its_item_into_a_pool_of_the_receiver) {
    static_assert(serializable<pooled<text>>);
    struct opaque {};
    static_assert(!serializable<pooled<opaque>>);
    item_pool<text> pool;
    pooled<text> sent = pool.get();
    sent->assign(5, 'z');
    body bytes;
    archive_writer writer(bytes);
    writer(sent, pooled<text>());
    archive_reader reader(bytes.bytes());
    pooled<text> got, none = pool.get();
    reader(got, none);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(*got, *sent);
    EXPECT_FALSE(none);
}

}  // namespace
}  // namespace amalgam
