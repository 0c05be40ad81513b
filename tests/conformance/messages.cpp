#include <algorithm>
#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

TEST_P(transport_suite, message_of_every_size_arrives_whole) {
    connection over = connected_pair();
    auto sizes = message_sizes();
    const_bytes all = patterned(sizes.back(), 1);
    for (std::size_t bytes : sizes) {
        operation& op = complete(over.a, request::send(over.b_at_a, bytes, all.first(bytes)));
        ASSERT_EQ(op.code(), errc::ok) << bytes;
        EXPECT_EQ(op.bytes(), bytes);
        arrival got = next_arrival(over.b);
        EXPECT_EQ(got.from, over.a_at_b);
        EXPECT_EQ(got.tag, bytes);
        ASSERT_EQ(got.bytes.size(), bytes);
        ASSERT_TRUE(is_pattern(got.bytes, 1)) << bytes;
    }
    flush(over);
    EXPECT_TRUE(over.b.arrived.empty());
}

TEST_P(transport_suite, gather_list_arrives_as_one_message) {
    connection over = connected_pair();
    seeded_random dice(2);
    for (std::size_t most : {3u, 40u, 5000u, 100000u}) {
        for (std::size_t pieces : {2u, 3u, 17u, 300u}) {
            std::vector<const_bytes> list;
            mutable_bytes all = patterned(most * pieces, 2);
            std::size_t taken = 0;
            for (std::size_t i = 0; i < pieces; ++i) {
                std::size_t bytes = dice.below(most + 1);
                list.push_back(all.subspan(taken, bytes));
                taken += bytes;
            }
            start(over.a, request{op_kind::send, over.b_at_a, pieces, list});
            arrival got = next_arrival(over.b);
            ASSERT_EQ(got.bytes.size(), taken);
            ASSERT_TRUE(is_pattern(got.bytes, 2)) << pieces << " pieces of up to " << most;
        }
    }
}

TEST_P(transport_suite, gather_list_of_nothing_is_an_empty_message) {
    connection over = connected_pair();
    start(over.a, request{op_kind::send, over.b_at_a, 1, {}});
    start(over.a, request{op_kind::send, over.b_at_a, 2, {const_bytes{}, const_bytes{}}});
    EXPECT_EQ(next_arrival(over.b).bytes.size(), 0u);
    EXPECT_EQ(next_arrival(over.b).tag, 2u);
}

TEST_P(transport_suite, messages_of_one_sender_keep_their_order_whatever_their_size) {
    connection over = connected_pair();
    constexpr std::size_t sizes[] = {0, 8, 100, 70000, 1, 64, 4096, 300000, 33, 2 << 20};
    const_bytes all = patterned(std::size_t{2} << 20, 3);
    std::uint64_t count = is_brief() ? 150 : 600;
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < count; ++i)
        ops.push_back(&start(over.a, request::send(over.b_at_a, i, all.first(sizes[i * 7 % 10]))));
    for (std::uint64_t i = 0; i < count; ++i) {
        arrival got = next_arrival(over.b);
        ASSERT_EQ(got.tag, i);
        ASSERT_EQ(got.bytes.size(), sizes[i * 7 % 10]);
        ASSERT_TRUE(is_pattern(got.bytes, 3));
    }
    finish(ops);
}

TEST_P(transport_suite, bytes_are_the_callers_again_once_the_send_is_over) {
    connection over = connected_pair();
    for (op_kind kind : {op_kind::send, op_kind::send_expected}) {
        for (std::size_t bytes : {8u, 60u, 4000u, 70000u, 3000000u}) {
            mutable_bytes lent = patterned(bytes, bytes);
            mutable_bytes into = zeroed(bytes);
            operation& op = start(over.a, request{kind, over.b_at_a, bytes, {lent}});
            // The far side receives nothing meanwhile, unless the send depends on that.
            for (int rounds = 0; !op.over() && rounds < 100; ++rounds)
                over.a.progress();
            finish(op);
            std::fill(lent.begin(), lent.end(), std::byte{0});
            if (kind == op_kind::send) {
                EXPECT_TRUE(is_pattern(next_arrival(over.b).bytes, bytes)) << bytes;
            } else {
                complete(over.b, request::receive(over.a_at_b, bytes, into));
                EXPECT_TRUE(is_pattern(into, bytes)) << bytes;
            }
        }
    }
}

TEST_P(transport_suite, messages_wait_in_order_for_a_sink) {
    connection over = connected_pair();
    over.b.be_deaf();
    const_bytes all = patterned(100000, 4);
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < 300; ++i) {
        operation& op =
            over.a.try_post(request::send(over.b_at_a, ops.size(), all.first(i % 10 ? i : 100000)));
        if (!op.refused()) ops.push_back(&op);
        move();
    }
    EXPECT_TRUE(over.b.arrived.empty());
    over.b.listen();
    for (std::uint64_t i = 0; i < ops.size(); ++i)
        ASSERT_EQ(next_arrival(over.b).tag, i);
    finish(ops);
    flush(over);
    EXPECT_TRUE(over.b.arrived.empty());
}

TEST_P(transport_suite, sink_may_come_and_go_without_loss) {
    connection over = connected_pair();
    constexpr std::uint64_t count = 500;
    std::vector<std::uint64_t> tags;
    over.b.on_arrival = [&](message& got) {
        tags.push_back(got.tag());
        if (tags.size() % 3 == 0) over.b.be_deaf();  // From within the sink itself.
    };
    for (std::uint64_t i = 0; i < count; ++i) {
        operation& op =
            over.a.try_post(request::send(over.b_at_a, i, patterned(i % 50 ? i : 100000, i)));
        until("room to post", [&] {
            if (i % 5 == 0 || op.refused()) over.b.listen();
            return !op.refused() || op.post() != posted::full;
        });
    }
    until("all messages", [&] {
        over.b.listen();
        return tags.size() >= count;
    });
    ASSERT_EQ(tags.size(), count);
    for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(tags[i], i);
}

TEST_P(transport_suite, taken_message_outlives_the_sink) {
    connection over = connected_pair();
    std::vector<buffer> kept;
    over.b.on_arrival = [&](message& got) { kept.push_back(got.take()); };
    constexpr std::size_t sizes[] = {0, 1, 64, 5000, 70000, 1000000};
    for (int round = 0; round < 5; ++round)
        for (std::size_t bytes : sizes)
            start(over.a, request::send(over.b_at_a, 0, patterned(bytes, bytes)));
    until("all messages", [&] { return kept.size() == 5 * std::size(sizes); });
    for (std::size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(kept[i].size(), sizes[i % std::size(sizes)]);
        ASSERT_TRUE(is_pattern(kept[i].bytes(), kept[i].size()));
    }
}

TEST_P(transport_suite, taken_message_outlives_the_port) {
    buffer kept;
    connection over = connected_pair();
    over.b.on_arrival = [&](message& got) { kept = got.take(); };
    start(over.a, request::send(over.b_at_a, 0, patterned(70000, 5)));
    until("the message", [&] { return kept.size() == 70000; });
    over.b.shut();
    EXPECT_TRUE(is_pattern(kept.bytes(), 5));
}

TEST_P(transport_suite, sink_may_answer_at_once) {
    connection over = connected_pair();
    int rounds = is_brief() ? 500 : 5000;
    int turns = 0;
    auto answer = [&](node& at) {
        return [&](message& got) {
            std::byte echo[16];
            std::copy(got.bytes().begin(), got.bytes().end(), echo);
            if (++turns == rounds) return;
            operation& op = at.try_post(request::send(got.from(), got.tag() + 1, echo));
            EXPECT_EQ(op.how(), posted::done);
        };
    };
    // The answers' bytes must be copied at once, since the array goes out of scope.
    if (over.a.end().can().inline_bytes < 16) GTEST_SKIP() << "no send is copied at once";
    over.a.on_arrival = answer(over.a);
    over.b.on_arrival = answer(over.b);
    start(over.a, request::send(over.b_at_a, 0, patterned(16, 6)));
    until("the last turn", [&] { return turns == rounds; });
}

TEST_P(transport_suite, short_send_is_copied_at_once_on_a_connection) {
    connection over = connected_pair();
    // No need to copy gigabytes for a transport that copies everything.
    std::size_t bytes = std::min<std::size_t>(over.a.end().can().inline_bytes, 65536);
    for (std::uint64_t i = 0; i < 200; ++i) {
        operation& op = start(over.a, request::send(over.b_at_a, i, patterned(bytes, i)));
        ASSERT_EQ(op.how(), posted::done) << i;
        ASSERT_TRUE(is_pattern(next_arrival(over.b).bytes, i));
    }
}

TEST_P(transport_suite, send_past_the_limit_is_too_large_and_harms_nothing) {
    connection over = connected_pair();
    std::size_t limit = over.a.end().can().max_message_bytes;
    ASSERT_GE(limit, std::size_t{64} << 20);
    constexpr std::size_t piece = std::size_t{64} << 20;
    if (limit / piece > 100000) GTEST_SKIP() << "no list of pieces is longer than its limit";
    const_bytes repeated = zeroed(piece);
    for (op_kind kind : {op_kind::send, op_kind::send_expected}) {
        std::vector<const_bytes> list(limit / piece + 1, repeated);
        operation& op = complete(over.a, request{kind, over.b_at_a, 7, list});
        EXPECT_EQ(op.code(), errc::too_large) << name(kind);
    }
    start(over.a, request::send(over.b_at_a, 8, patterned(10, 8)));
    EXPECT_EQ(next_arrival(over.b).tag, 8u);
}

TEST_P(transport_suite, sends_before_the_connection_stands_arrive_in_order) {
    node& a = open();
    node& b = open();
    peer_id to_b = a.end().lookup(b.end().address()).value();
    constexpr std::size_t sizes[] = {3, 5000, 0, 200000, 64, 1};
    for (std::uint64_t i = 0; i < std::size(sizes); ++i)
        start(a, request::send(to_b, i, patterned(sizes[i], i)));
    for (std::uint64_t i = 0; i < std::size(sizes); ++i) {
        arrival got = next_arrival(b);
        ASSERT_EQ(got.tag, i);
        ASSERT_EQ(got.bytes.size(), sizes[i]);
        ASSERT_TRUE(is_pattern(got.bytes, i));
    }
}

}  // namespace
}  // namespace amalgam::conformance
