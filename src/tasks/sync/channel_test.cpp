#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/slow_build.hpp"
#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

using channel_in_virtual_time = driven_stream_test;

TEST(channel, gives_every_item_to_one_popper_in_order_of_each_pusher) {
    execution_stream left, right;
    channel<std::pair<int, int>> items(3);  // (pusher, number)
    std::atomic<long> sum = 0;
    const auto push = [&](int pusher) {
        for (int i = 1; i <= 2000; ++i)
            items.push({pusher, i});
    };
    const auto pop = [&] {
        std::vector<int> last(3);
        for (const auto& [pusher, number] : items) {
            EXPECT_LT(std::exchange(last[static_cast<std::size_t>(pusher)], number), number);
            sum += number;
        }
    };
    ult a = spawn(left, pop);
    ult b = spawn(right, pop);
    std::thread c(pop);
    {
        const ult d = spawn(left, [&] { push(0); });
        const ult e = spawn(right, [&] { push(1); });
        push(2);
    }
    items.close();
    c.join();
    a.join();
    b.join();
    EXPECT_EQ(sum, 3 * 2001000);
}

TEST_F(channel_in_virtual_time, hands_an_item_straight_to_the_popper_that_waits_longest) {
    channel<int> items(4);
    for (char c : {'a', 'b', 'c'})
        post(stream, [&, c] { seen += c + std::to_string(items.pop().value()) + ' '; });
    stream.run_ready();
    items.push(1);
    EXPECT_EQ(items.size(), 0u);
    items.push(2);
    items.push(3);
    items.push(4);
    EXPECT_EQ(items.size(), 1u);
    stream.run_ready();
    EXPECT_EQ(seen, "a1 b2 c3 ");
}

TEST_F(channel_in_virtual_time, lets_the_pusher_that_waits_longest_into_the_freed_place) {
    channel<int> items(1);
    for (int i : {1, 2, 3})
        post(stream, [&, i] { items.push(i); });
    stream.run_ready();
    for (int i : {1, 2, 3}) {
        EXPECT_FALSE(items.try_push(9));
        EXPECT_EQ(items.try_pop(), i);
        EXPECT_EQ(items.size(), i < 3 ? 1u : 0u);
    }
}

TEST_F(channel_in_virtual_time, closed_it_is_drained_and_then_gives_nothing) {
    channel<int> items(2);
    items.push(1);
    items.push(2);
    post(stream, [&] {
        try {
            items.push(3);
        } catch (const error& why) {
            seen += name(why.code().code);
        }
    });
    stream.run_ready();
    EXPECT_FALSE(items.closed());
    items.close();
    items.close();
    EXPECT_TRUE(items.closed());
    stream.run_ready();
    EXPECT_EQ(seen, "closed");
    EXPECT_THROW(items.push(4), error);
    EXPECT_FALSE(items.try_push(4));
    EXPECT_EQ(items.pop(), 1);
    EXPECT_EQ(items.try_pop(), 2);
    EXPECT_EQ(items.pop(), std::nullopt);
    EXPECT_EQ(items.try_pop(), std::nullopt);
}

TEST_F(channel_in_virtual_time, closing_ends_the_wait_of_poppers) {
    channel<int> items(1);
    for (int i = 0; i < 2; ++i)
        post(stream, [&] { seen += items.pop() ? "item " : "nothing "; });
    stream.run_ready();
    EXPECT_EQ(seen, "");
    items.close();
    stream.run_ready();
    EXPECT_EQ(seen, "nothing nothing ");
}

TEST_F(channel_in_virtual_time, deadlines_end_waits_and_leave_the_item_to_its_pusher) {
    channel<std::unique_ptr<int>> items(1);
    post(stream, [&] { seen += items.pop_for(10ms) ? "item " : "nothing "; });
    stream.run_ready();
    advance(9ms);
    EXPECT_EQ(seen, "");
    advance(1ms);
    EXPECT_EQ(seen, "nothing ");

    items.push(std::make_unique<int>(1));
    EXPECT_EQ(items.size(), 1u);  // the popper that gave up is off the list
    auto second = std::make_unique<int>(2);
    post(stream, [&] { seen += items.push_for(std::move(second), 10ms) ? "pushed " : "late "; });
    stream.run_ready();
    advance(10ms);
    EXPECT_EQ(seen, "nothing late ");
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(**items.pop(), 1);
    EXPECT_EQ(items.size(), 0u);

    items.push(std::move(second));
    post(stream, [&] { seen += items.push_for(std::make_unique<int>(3), 10ms) ? "pushed" : ""; });
    stream.run_ready();
    EXPECT_EQ(**items.pop_for(10ms), 2);
    advance(10ms);
    EXPECT_EQ(seen, "nothing late pushed");
}

TEST_F(channel_in_virtual_time, who_is_canceled_takes_and_brings_nothing) {
    channel<int> items(1);
    ult pops = spawn(stream, [&] { items.pop(); });
    run();
    pops.cancel();
    items.push(1);  // it received the item before it could run
    run();
    pops.join();
    EXPECT_EQ(items.size(), 0u);

    pops = spawn(stream, [&] { items.pop(); });
    run();
    pops.cancel();
    run();
    EXPECT_THROW(pops.join(), error);
    items.push(2);
    ult pushes = spawn(stream, [&] { items.push(3); });
    run();
    pushes.cancel();
    run();
    EXPECT_THROW(pushes.join(), error);
    EXPECT_EQ(items.pop(), 2);
    EXPECT_EQ(items.size(), 0u);
}

/// Its move throws on request.
struct fragile {
    explicit fragile(int n) : number(n) {}
    fragile(fragile&& other) : number(other.number) {
        if (fails == number) throw std::runtime_error("it broke");
    }
    int number;
    static inline int fails = 0;
};

struct channel_of_fragile : channel_in_virtual_time {
    void SetUp() override { fragile::fails = 0; }
    void TearDown() override { fragile::fails = 0; }

    void post_push(int number) {
        post(stream, [this, number] {
            try {
                items.push(fragile(number));
                seen += "pushed ";
            } catch (const std::runtime_error& why) {
                seen += why.what();
                seen += ' ';
            }
        });
        stream.run_ready();
    }
    channel<fragile> items{1};
};

TEST_F(channel_of_fragile, a_throwing_move_fails_the_push_or_pop_and_changes_nothing_else) {
    fragile one(1);
    fragile::fails = 1;
    EXPECT_THROW(items.push(std::move(one)), std::runtime_error);
    EXPECT_EQ(items.size(), 0u);
    fragile::fails = 0;
    items.push(std::move(one));
    fragile::fails = 1;
    EXPECT_THROW(items.pop(), std::runtime_error);
    EXPECT_EQ(items.size(), 1u);
    fragile::fails = 0;
    EXPECT_EQ(items.pop()->number, 1);
}

TEST_F(channel_of_fragile, a_pusher_that_waits_gets_what_its_move_throws_and_the_next_is_let_in) {
    items.push(fragile(1));
    post_push(2);
    post_push(3);
    fragile::fails = 2;
    EXPECT_EQ(items.pop()->number, 1);
    stream.run_ready();
    EXPECT_EQ(seen, "it broke pushed ");
    EXPECT_EQ(items.pop()->number, 3);
}

TEST_F(channel_of_fragile, a_popper_waits_on_when_the_item_for_it_breaks) {
    post(stream, [&] { seen += std::to_string(items.pop()->number); });
    stream.run_ready();
    fragile::fails = 1;
    EXPECT_THROW(items.push(fragile(1)), std::runtime_error);
    stream.run_ready();
    EXPECT_EQ(seen, "");
    items.push(fragile(2));
    stream.run_ready();
    EXPECT_EQ(seen, "2");
}

TEST(channel, destroys_the_items_that_are_left) {
    auto item = std::make_shared<int>(1);
    {
        channel<std::shared_ptr<int>> items(3);
        items.push(item);
        items.push(item);
        items.pop();
        items.push(item);
        items.push(item);  // wraps around
        EXPECT_EQ(item.use_count(), 4);
    }
    EXPECT_EQ(item.use_count(), 1);
}

TEST(channel, without_room_for_an_item_is_refused) {
    EXPECT_THROW(channel<int>(0), error);
    EXPECT_EQ(channel<int>(7).capacity(), 7u);
    if (conformance::slow_build) return;  // Sanitizers end the process if out of memory.
    for (const std::size_t huge : {SIZE_MAX, SIZE_MAX / 8, SIZE_MAX / 64}) {
        try {
            channel<std::string> refused(huge);
            ADD_FAILURE() << huge;
        } catch (const error& why) {
            EXPECT_EQ(why.code().code, errc::no_memory);
            EXPECT_NE(std::string(why.what()).find("smaller capacity"), std::string::npos);
        }
    }
}

TEST_F(channel_in_virtual_time, a_tasklet_may_try_but_not_wait) {
    channel<int> items(1);
    post_tasklet(stream, [&] {
        EXPECT_TRUE(items.try_push(1));
        EXPECT_FALSE(items.try_push(2));
        EXPECT_THROW(items.push(2), error);
        EXPECT_EQ(items.try_pop(), 1);
        EXPECT_EQ(items.try_pop(), std::nullopt);
        EXPECT_THROW(items.pop(), error);
        items.push(3);  // there is room, so nobody waits
    });
    EXPECT_EQ(stream.run_ready(), 1u);
    EXPECT_EQ(items.size(), 1u);
}

detached_coroutine push_some(channel<std::unique_ptr<int>>& items, int count, std::string& seen) {
    try {
        for (int i = 0; i < count; ++i)
            co_await items.start_push(std::make_unique<int>(i));
        seen += "all pushed ";
    } catch (const error& why) {
        seen += name(why.code().code);
    }
}

detached_coroutine pop_all(channel<std::unique_ptr<int>>& items, std::string& seen) {
    while (const auto item = co_await items.start_pop())
        seen += std::to_string(**item) + ' ';
    seen += "drained ";
}

TEST_F(channel_in_virtual_time, coroutines_push_and_pop) {
    channel<std::unique_ptr<int>> items(1);
    spawn(stream, [&] {
        pop_all(items, seen);
        push_some(items, 4, seen);
        this_task::yield();
    }).detach();
    stream.run_ready();
    EXPECT_EQ(seen, "0 1 2 all pushed 3 ");
    items.push(std::make_unique<int>(4));
    EXPECT_EQ(seen, "0 1 2 all pushed 3 ");  // it continues on its stream
    stream.run_ready();
    items.close();
    stream.run_ready();
    EXPECT_EQ(seen, "0 1 2 all pushed 3 4 drained ");
}

TEST(channel, a_coroutine_that_waits_to_push_is_told_of_the_end) {
    channel<std::unique_ptr<int>> items(1);
    std::string seen;
    push_some(items, 2, seen);  // from a plain thread: continues inside close()
    EXPECT_EQ(seen, "");
    items.close();
    EXPECT_EQ(seen, "closed");
    push_some(items, 1, seen);
    EXPECT_EQ(seen, "closedclosed");
}

TEST(channel, may_die_as_soon_as_the_last_item_came_or_nothing) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto items = std::make_unique<channel<int>>(1);
        post(stream, [at = items.get(), closes = i % 2 == 0] {
            at->push(1);
            at->push(2);
            if (closes) at->close();
        });
        ASSERT_EQ(items->pop(), 1);
        ASSERT_EQ(items->pop(), 2);
        if (i % 2 == 0) {
            ASSERT_EQ(items->pop(), std::nullopt);
        }
    }
}

}  // namespace
}  // namespace amalgam
