#include <vector>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

TEST_P(transport_suite, expected_message_of_every_size_fills_the_receive_posted_before) {
    connection over = connected_pair();
    auto sizes = message_sizes();
    const_bytes all = patterned(sizes.back(), 1);
    mutable_bytes into = zeroed(sizes.back());
    for (std::size_t bytes : sizes) {
        std::fill_n(into.begin(), bytes, std::byte{0xee});
        operation& receive = start(over.b, request::receive(over.a_at_b, bytes, into.first(bytes)));
        operation& send =
            complete(over.a, request::send_expected(over.b_at_a, bytes, all.first(bytes)));
        EXPECT_EQ(send.bytes(), bytes);
        finish(receive);
        ASSERT_EQ(receive.code(), errc::ok) << bytes;
        EXPECT_EQ(receive.bytes(), bytes);
        ASSERT_TRUE(is_pattern(into.first(bytes), 1)) << bytes;
    }
}

TEST_P(transport_suite, expected_message_of_every_size_waits_for_its_receive) {
    connection over = connected_pair();
    auto sizes = message_sizes();
    const_bytes all = patterned(sizes.back(), 1);
    mutable_bytes into = zeroed(sizes.back());
    for (std::size_t bytes : sizes) {
        std::fill_n(into.begin(), bytes, std::byte{0xee});
        operation& send =
            start(over.a, request::send_expected(over.b_at_a, bytes, all.first(bytes)));
        // The message, or its start, arrives before the receive is posted: messages keep their
        // order.
        if (bytes < 100000) flush(over);
        for (int rounds = 0; rounds < 5; ++rounds)
            move();
        operation& receive =
            complete(over.b, request::receive(over.a_at_b, bytes, into.first(bytes)));
        ASSERT_EQ(receive.code(), errc::ok) << bytes;
        EXPECT_EQ(receive.bytes(), bytes);
        ASSERT_TRUE(is_pattern(into.first(bytes), 1)) << bytes;
        finish(send);
    }
    EXPECT_TRUE(over.b.arrived.empty()) << "expected messages are not for the sink";
}

TEST_P(transport_suite, receive_too_small_says_so_and_the_next_one_matches) {
    connection over = connected_pair();
    for (bool posted_before : {true, false}) {
        for (std::size_t bytes : {9u, 65u, 5000u, 70000u, 3000000u}) {
            SCOPED_TRACE(bytes);
            mutable_bytes small = zeroed(bytes - 1);
            mutable_bytes right = zeroed(bytes);
            auto receive_both = [&] {
                return std::vector<operation*>{
                    &start(over.b, request::receive(over.a_at_b, 5, small)),
                    &start(over.b, request::receive(over.a_at_b, 5, right))};
            };
            std::vector<operation*> receives;
            if (posted_before) receives = receive_both();
            auto& first =
                start(over.a, request::send_expected(over.b_at_a, 5, patterned(bytes, 1)));
            auto& second =
                start(over.a, request::send_expected(over.b_at_a, 5, patterned(bytes, 2)));
            if (!posted_before) {
                for (int rounds = 0; rounds < 20; ++rounds)
                    move();
                receives = receive_both();
            }
            finish(receives);
            finish({&first, &second});
            EXPECT_EQ(receives[0]->code(), errc::too_large);
            EXPECT_EQ(receives[1]->code(), errc::ok);
            EXPECT_TRUE(is_pattern(right, 2));
        }
    }
}

TEST_P(transport_suite, receive_larger_than_the_message_keeps_its_rest) {
    connection over = connected_pair();
    for (std::size_t bytes : {0u, 8u, 63u, 5000u, 70000u, 1000000u}) {
        mutable_bytes into = zeroed(bytes + 1000);
        operation& receive = start(over.b, request::receive(over.a_at_b, 1, into));
        start(over.a, request::send_expected(over.b_at_a, 1, patterned(bytes, 3)));
        finish(receive);
        EXPECT_EQ(receive.bytes(), bytes);
        EXPECT_TRUE(is_pattern(into.first(bytes), 3));
        EXPECT_TRUE(is_all(into.subspan(bytes), std::byte{0}));
    }
}

TEST_P(transport_suite, tags_do_not_mix) {
    connection over = connected_pair();
    constexpr std::uint64_t tags[] = {0, 1, 2, 1ull << 32, 1ull << 63, ~0ull};
    std::vector<operation*> receives;
    std::vector<mutable_bytes> places;
    auto receive = [&](std::uint64_t tag) {
        places.push_back(zeroed(32));
        receives.push_back(&start(over.b, request::receive(over.a_at_b, tag, places.back())));
    };
    for (std::size_t i = 0; i < 3; ++i)
        receive(tags[5 - i]);
    for (std::uint64_t tag : tags)
        start(over.a, request::send_expected(over.b_at_a, tag, patterned(32, tag)));
    flush(over);
    for (std::size_t i = 3; i < 6; ++i)
        receive(tags[5 - i]);
    finish(receives);
    for (std::size_t i = 0; i < 6; ++i)
        EXPECT_TRUE(is_pattern(places[i], tags[5 - i])) << i;
}

TEST_P(transport_suite, receives_of_one_tag_match_in_the_order_of_posting) {
    connection over = connected_pair();
    constexpr std::size_t count = 200;
    std::vector<mutable_bytes> places;
    std::vector<operation*> receives;
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t bytes = i % 9 ? 40 : 70000;
        places.push_back(zeroed(bytes));
        if (i < count / 2)
            receives.push_back(&start(over.b, request::receive(over.a_at_b, 6, places[i])));
    }
    for (std::size_t i = 0; i < count; ++i)
        start(over.a, request::send_expected(over.b_at_a, 6, patterned(places[i].size(), i)));
    for (std::size_t i = count / 2; i < count; ++i)
        receives.push_back(&start(over.b, request::receive(over.a_at_b, 6, places[i])));
    finish(receives);
    for (std::size_t i = 0; i < count; ++i)
        ASSERT_TRUE(is_pattern(places[i], i)) << i;
}

TEST_P(transport_suite, senders_do_not_mix) {
    node& b = open();
    connection first = connect(open(), b);
    connection second = connect(open(), b);
    EXPECT_NE(first.a_at_b, second.a_at_b);
    mutable_bytes from_first = zeroed(500);
    mutable_bytes from_second = zeroed(500);
    operation& one = start(b, request::receive(first.a_at_b, 1, from_first));
    start(second.a, request::send_expected(second.b_at_a, 1, patterned(500, 2)));
    flush(second);
    EXPECT_FALSE(one.over());
    operation& two = complete(b, request::receive(second.a_at_b, 1, from_second));
    start(first.a, request::send_expected(first.b_at_a, 1, patterned(500, 1)));
    finish({&one, &two});
    EXPECT_TRUE(is_pattern(from_first, 1));
    EXPECT_TRUE(is_pattern(from_second, 2));
}

TEST_P(transport_suite, expected_and_unexpected_do_not_mix) {
    connection over = connected_pair();
    mutable_bytes into = zeroed(32);
    operation& receive = start(over.b, request::receive(over.a_at_b, 9, into));
    start(over.a, request::send(over.b_at_a, 9, patterned(32, 1)));
    EXPECT_TRUE(is_pattern(next_arrival(over.b).bytes, 1));
    EXPECT_FALSE(receive.over());
    start(over.a, request::send_expected(over.b_at_a, 9, patterned(32, 2)));
    finish(receive);
    EXPECT_TRUE(is_pattern(into, 2));
    EXPECT_TRUE(over.b.arrived.empty());
}

TEST_P(transport_suite, expected_messages_past_the_queue_limit_wait_at_their_sender) {
    port_options tight;
    tight.max_queued_bytes = 256 * 1024;
    node& b = open(tight);
    connection over = connect(open(), b);
    constexpr std::size_t count = 100;
    constexpr std::size_t bytes = 50000;
    const_bytes all = patterned(bytes * 2, 7);
    std::vector<operation*> sends;
    auto send_what_goes = [&] {
        while (sends.size() < count || sends.back()->refused()) {
            if (!sends.empty() && sends.back()->refused()) {
                if (sends.back()->post() == posted::full) return;
            } else {
                sends.push_back(&over.a.try_post(
                    request::send_expected(over.b_at_a, 1, all.subspan(sends.size(), bytes))));
            }
        }
    };
    for (int rounds = 0; rounds < 300; ++rounds) {
        send_what_goes();
        move();
    }
    for (std::size_t i = 0; i < count; ++i) {
        mutable_bytes into = zeroed(bytes);
        operation& receive = start(b, request::receive(over.a_at_b, 1, into));
        until("the message", [&] {
            send_what_goes();
            return receive.over();
        });
        ASSERT_EQ(receive.code(), errc::ok);
        ASSERT_TRUE(is_pattern(into, 7, i));
    }
    finish(sends);
}

}  // namespace
}  // namespace amalgam::conformance
