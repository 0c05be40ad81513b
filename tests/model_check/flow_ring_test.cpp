// flow: a ring between two nodes, with its doorbells and the waiters of its ends.
#include <gtest/gtest.h>

#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/flow/pooled.hpp>

#include "model_check/checker/checker.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto release = std::memory_order_release;

/// `light`: pushes without an exchange, and a barrier by who falls asleep.
detail::ring<int>& make_ring(execution& run, std::size_t items, bool light) {
    auto& ring = run.make<detail::ring<int>>(items, true);
    // The yields before a sleep only make the check longer.
    const_cast<bool&>(ring.across_streams_) = false;
    const_cast<bool&>(ring.light_) = light;
    ring.own_consumer_bell_.light_rings_ = light;
    run.name(&ring.tail_, "tail");
    run.name(&ring.head_, "head");
    run.name(&ring.closed_, "closed");
    run.name(&ring.own_consumer_bell_.waits_, "consumer's bell");
    run.name(&ring.own_producer_bell_.waits_, "producer's bell");
    return ring;
}

/// The items from `first` to `last` are pushed, and those from 1 on are taken.
template <typename Ring>
void pass(execution& run, Ring& ring, int first, int last, bool closes = false) {
    run.thread([&ring, first, last, closes] {
        for (int i = first; i <= last; ++i)
            ring.push(i);
        if (closes) ring.close();
    });
    run.thread([&ring, last, closes] {
        for (int i = 1; i <= last; ++i) {
            const int* const item = ring.front();
            require(item != nullptr && *item == i, "an item is missing, or out of order");
            ring.pop();
        }
        if (closes) require(ring.front() == nullptr, "the stream does not end");
    });
}

using fault = std::function<void(execution&, detail::ring<int>&)>;

struct program {
    std::size_t capacity = 1;
    int items = 1;
    bool closes = false;
    bool is_filled = false;  ///< One item more is there from the start.
};

result of_ring(bool light, program what, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& ring = make_ring(run, what.capacity, light);
        if (weaken) weaken(run, ring);
        if (what.is_filled) ring.push(1);
        pass(run, ring, what.is_filled ? 2 : 1, what.items + what.is_filled, what.closes);
    });
}

void expect_in_order_and_awake(bool light, program what) {
    const result found = of_ring(light, what);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

// A test for each, as together they take long.
TEST(flow_ring, items_arrive_in_order_and_nobody_sleeps_for_ever) {
    expect_in_order_and_awake(false, {.capacity = 2, .items = 2});
}

TEST(flow_ring, who_waits_for_room_does_not_sleep_for_ever) {
    // There is no barrier in either case.
    expect_in_order_and_awake(false, {.is_filled = true});
}

TEST(flow_ring, its_end_is_found_and_nobody_sleeps_for_ever) {
    expect_in_order_and_awake(false, {.closes = true});
}

TEST(flow_ring, its_end_is_found_with_the_barrier) {
    expect_in_order_and_awake(true, {.closes = true});
}

/// A mark, with an item before it or behind it.
result of_marked_ring(bool light, bool is_behind, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& ring = make_ring(run, 1, light);
        run.name(&ring.mark_, "mark");
        if (weaken) weaken(run, ring);
        run.thread([&ring, is_behind] {
            if (!is_behind) ring.push(1);
            ring.mark(7);
            if (is_behind) ring.push(1);
        });
        run.thread([&ring, is_behind] {
            const auto take_item = [&ring] {
                const int* const item = ring.front();
                require(item != nullptr && *item == 1, "the item is missing");
                ring.pop();
            };
            if (!is_behind) take_item();
            require(ring.front() == nullptr && ring.is_at_mark(), "the mark is passed unseen");
            require(ring.take_mark() == 7, "the mark is another one");
            if (is_behind) take_item();
        });
    });
}

TEST(flow_ring, a_mark_is_found_at_its_place_and_nobody_sleeps_for_ever) {
    for (const bool light : {false, true}) {
        for (const bool is_behind : {false, true}) {
            const result found = of_marked_ring(light, is_behind);
            EXPECT_EQ(found.failure, "") << found.trace;
            EXPECT_TRUE(found.complete) << light << is_behind;
        }
    }
}

TEST(flow_ring, a_relaxed_mark_is_found) {
    const result found = of_marked_ring(true, true, [](execution& run, auto& ring) {
        run.weaken(ring.mark_, act::store, relaxed);
    });
    EXPECT_EQ(found.failure, "two threads race for plain memory") << found.trace;
}

TEST(flow_ring, a_relaxed_tail_is_found) {
    const result found = of_ring(
        true, {}, [](execution& run, auto& ring) { run.weaken(ring.tail_, act::store, relaxed); });
    EXPECT_EQ(found.failure, "two threads race for plain memory") << found.trace;
}

TEST(flow_ring, a_relaxed_head_is_found) {
    const result found = of_ring(true, {.is_filled = true}, [](execution& run, auto& ring) {
        run.weaken(ring.head_, act::store, relaxed);
    });
    EXPECT_NE(found.failure, "");
}

TEST(flow_ring, a_tail_that_is_not_seq_cst_needs_the_barrier) {
    const result found = of_ring(
        false, {}, [](execution& run, auto& ring) { run.weaken(ring.tail_, act::store, release); });
    EXPECT_EQ(found.failure, "all threads wait for ever") << found.trace;
}

TEST(flow_ring, a_barrier_left_out_is_found) {
    const result found = of_ring(
        true, {}, [](execution&, auto& ring) { ring.own_consumer_bell_.light_rings_ = false; });
    EXPECT_EQ(found.failure, "all threads wait for ever") << found.trace;
}

/// A node waits for room at one of its queues, or for an item in one of them, while the run is
/// stopped. The other end is on its own stream, so that the bell has no barrier.
result of_stop(bool for_room, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& bell = run.make<detail::doorbell>();
        auto& ring = make_ring(run, 1, true);
        for_room ? ring.share_producer_bell(bell) : ring.share_consumer_bell(bell);
        run.name(&bell.waits_, "bell");
        run.name(&ring.stopped_, "stopped");
        if (weaken) weaken(run, ring);
        if (for_room) ring.push(1);
        run.thread([&bell, &ring, for_room] {
            // As out_port::least_busy(), and one_inlet::is_ready().
            bell.wait_until("flow queue", [&ring, for_room] {
                return ring.is_stopped() ||
                       (for_room ? ring.before_consumer() == 0 : ring.has_item_now());
            });
        });
        run.thread([&ring] { ring.stop(); });
    });
}

TEST(flow_ring, a_node_with_several_queues_does_not_sleep_through_a_stop) {
    for (const bool for_room : {false, true}) {
        const result found = of_stop(for_room);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(flow_ring, a_weaker_stop_is_found) {
    EXPECT_EQ(of_stop(true,
                      [](execution& run, auto& ring) {
                          run.weaken(ring.stopped_, act::load, std::memory_order_acquire);
                      })
                  .failure,
              "all threads wait for ever");
    EXPECT_EQ(of_stop(false, [](execution& run,
                                auto& ring) { run.weaken(ring.stopped_, act::store, release); })
                  .failure,
              "all threads wait for ever");
}

TEST(growing_ring, a_chunk_is_handed_over_and_freed_in_time) {
    const auto run_with = [](bool weaken) {
        return explore([=](execution& run) {
            auto& ring = run.make<detail::growing_ring<int>>(true);
            const_cast<bool&>(ring.across_streams_) = false;
            for (int i = 0; i < 256; ++i) {
                ring.push(0);
                ring.front();
                ring.pop();
            }
            if (weaken) run.weaken(ring.tail_, act::store, relaxed);
            pass(run, ring, 1, 1);
        });
    };
    const result found = run_with(false);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    EXPECT_NE(run_with(true).failure, "");
}

/// One returns an item while the other takes one, and ends the pool.
result of_item_pool(const std::function<void(execution&, item_pool<int>&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& pool = run.make<std::unique_ptr<item_pool<int>>>(std::make_unique<item_pool<int>>());
        auto& items = run.make<std::vector<pooled<int>>>();
        items.push_back(pool->get());
        if (weaken) weaken(run, *pool);
        run.thread([&items] {
            auto mine = std::move(items[0]);
            *mine = 1;
        });
        run.thread([&pool] {
            {
                auto mine = pool->get();
                *mine = 2;
            }
            pool.reset();
        });
    });
}

TEST(item_pool, items_are_used_by_one_and_freed_once) {
    const result found = of_item_pool();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(item_pool, weaker_orders_are_found) {
    EXPECT_NE(of_item_pool([](execution& run, auto& pool) {
                  run.weaken(pool.core_->returned_, act::change, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_item_pool([](execution& run, auto& pool) {
                  run.weaken(pool.core_->owners_, act::change, relaxed);
              }).failure,
              "");
}

}  // namespace
}  // namespace amalgam::model
