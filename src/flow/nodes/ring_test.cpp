#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {
namespace {

TEST(ring, behaves_as_a_deque_under_random_pushes_and_pops) {
    for (std::size_t capacity : {1u, 2u, 3u, 10u, 16u, 64u}) {
        ring<std::string> tested(capacity, false);
        std::deque<std::string> model;
        seeded_random random(capacity);
        std::uint64_t pushed = 0;
        // Room is returned in portions of an eighth, so up to that much may seem occupied.
        std::size_t usable = capacity - capacity / 8;
        for (int step = 0; step < 20000; ++step) {
            if (random.chance(0.5) && model.size() < usable) {
                std::string item = std::to_string(step) + std::string(random.below(40), 'x');
                model.push_back(item);
                tested.push(item);
                ASSERT_EQ(tested.published(), ++pushed);
            } else if (!model.empty()) {
                ASSERT_EQ(*tested.front(), model.front());
                tested.pop();
                model.pop_front();
            }
        }
    }
}

TEST(ring, holds_as_many_as_it_was_made_for) {
    for (const std::size_t capacity : {1u, 2u, 3u, 10u, 100u}) {
        ring<int> tested(capacity, false);
        std::size_t held = 0;
        for (; tested.has_room(); ++held)
            tested.push(0);
        EXPECT_EQ(held, capacity);
    }
}

TEST(ring, gives_everything_that_was_pushed_before_its_end) {
    ring<int> tested(8, false);
    for (int i = 0; i < 3; ++i)
        tested.push(i);
    tested.close();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(*tested.front(), i);
        tested.pop();
    }
    EXPECT_EQ(tested.front(), nullptr);
    EXPECT_EQ(tested.front(), nullptr);
}

/// Passes `count` numbers through a small ring between two places and checks the order.
template <typename Start>
void pass_numbers(std::uint64_t count, bool across_streams, Start start) {
    ring<std::uint64_t> tested(13, across_streams);
    event closed, done;
    start(
        [&] {
            for (std::uint64_t i = 0; i < count; ++i)
                tested.push(i);
            tested.close();
            closed.set();
        },
        [&] {
            std::uint64_t expected = 0;
            while (std::uint64_t* item = tested.front()) {
                ASSERT_EQ(*item, expected++);
                tested.pop();
            }
            EXPECT_EQ(expected, count);
            done.set();
        });
    done.wait();
    closed.wait();  // close() uses the ring slightly longer than the consumer does.
}

TEST(ring, two_ults_of_one_stream_wait_for_each_other) {
    execution_stream stream;
    ult producer, consumer;
    pass_numbers(20000, false, [&](auto produce, auto consume) {
        producer = spawn(stream, produce);
        consumer = spawn(stream, consume);
    });
}

TEST(ring, ults_of_two_streams_wait_for_each_other) {
    execution_stream one, two;
    ult producer, consumer;
    pass_numbers(20000, true, [&](auto produce, auto consume) {
        producer = spawn(one, produce);
        consumer = spawn(two, consume);
    });
}

TEST(ring, plain_threads_wait_for_each_other) {
    std::jthread producer, consumer;
    pass_numbers(20000, true, [&](auto produce, auto consume) {
        producer = std::jthread(produce);
        consumer = std::jthread(consume);
    });
}

TEST(ring, a_stopped_producer_stops_waiting_for_room) {
    ring<int> tested(2, false);
    bool stopped = false;
    std::jthread producer([&] {
        try {
            for (int i = 0; i < 10; ++i)
                tested.push(i);
        } catch (const error& why) {
            stopped = why.code() == errc::canceled;
        }
    });
    while (tested.published() < 2)
        std::this_thread::yield();
    tested.stop();
    producer.join();
    EXPECT_TRUE(stopped);
}

TEST(ring, says_what_its_ends_wait_for) {
    execution_stream stream(execution_stream_options{.driven = true});
    ring<int> full(2, false), empty(2, false);
    ult producer = spawn(stream,
                         [&] {
                             for (int i = 0; i < 3; ++i)
                                 full.push(i);
                         },
                         {.name = "producer"});
    ult consumer = spawn(stream, [&] { empty.front(); }, {.name = "consumer"});
    stream.run_ready();
    std::map<std::string, std::string> waits;
    for (const ult_info& each : list_ults())
        waits[each.name] = each.waits_for;
    EXPECT_EQ(waits["producer"], "room in a flow queue");
    EXPECT_EQ(waits["consumer"], "item in a flow queue");
    full.stop();
    empty.close();
    stream.run_ready();
    consumer.join();
    EXPECT_THROW(producer.join(), error);
}

TEST(ring, once_stopped_neither_end_goes_on) {
    ring<int> tested(4, false);
    tested.push(1);
    tested.push(2);
    ASSERT_EQ(*tested.front(), 1);
    tested.stop();
    tested.pop();
    EXPECT_THROW(tested.front(), error);
    EXPECT_THROW(tested.push(3), error);
}

TEST(ring, a_consumed_item_lets_go_of_what_it_held) {
    ring<std::shared_ptr<int>> tested(4, false);
    auto held = std::make_shared<int>(1);
    tested.push(held);
    ASSERT_EQ(held.use_count(), 2);
    tested.front();
    tested.pop();
    EXPECT_EQ(held.use_count(), 1);
}

TEST(ring, small_text_keeps_its_memory_for_the_next_and_large_text_does_not) {
    std::string small(200, 'a'), large(5000, 'b');
    tidy(small);
    tidy(large);
    EXPECT_GE(small.capacity(), 200u);
    EXPECT_LT(large.capacity(), 5000u);
    std::vector<std::string> nested(3, "text");
    tidy(nested);
    EXPECT_TRUE(nested.empty());
}

}  // namespace
}  // namespace amalgam::detail
