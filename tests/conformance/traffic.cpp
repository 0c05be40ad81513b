#include <algorithm>
#include <vector>

#include <amalgam/fabric/extension/peer_traffic.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

detail::peer_traffic traffic_of(node& at) {
    return dynamic_cast<const detail::traffic_counts&>(at.end()).traffic();
}

TEST_P(transport_suite, each_end_counts_the_messages_and_bytes_that_passed) {
    connection over = connected_pair();
    if (dynamic_cast<const detail::traffic_counts*>(&over.a.end()) == nullptr)
        GTEST_SKIP() << "this port does not count";
    const detail::peer_traffic a_before = traffic_of(over.a), b_before = traffic_of(over.b);
    const auto sizes = message_sizes();
    std::uint64_t bytes = 0, messages = 0;
    for (std::size_t size : sizes) {
        if (size > (std::size_t{1} << 20)) break;
        const_bytes out = patterned(size, 1);
        complete(over.a, request::send(over.b_at_a, 1, out));
        next_arrival(over.b);
        // One that is waited for, and one that comes first.
        operation& got = start(over.b, request::receive(over.a_at_b, 2, zeroed(size)));
        complete(over.a, request::send_expected(over.b_at_a, 2, out));
        finish(got);
        complete(over.a, request::send_expected(over.b_at_a, 3, out));
        complete(over.b, request::receive(over.a_at_b, 3, zeroed(size)));
        bytes += 3 * size, messages += 3;
    }
    mutable_bytes far = zeroed(5000);
    region target = over.b.end().open_region(far, access::read_write).value();
    complete(over.a, request::put(over.b_at_a, {patterned(3000, 2)}, target.key(), 0));
    complete(over.a, request::get(over.b_at_a, {zeroed(700)}, target.key(), 0));

    for (bool is_gone : {false, true}) {
        if (is_gone) {
            over.a.end().close(over.b_at_a);
            until("b hears of the end", [&] { return over.b.has_lost(over.a_at_b); });
        }
        const detail::peer_traffic a = traffic_of(over.a), b = traffic_of(over.b);
        EXPECT_EQ(a.sent_messages - a_before.sent_messages, messages);
        EXPECT_EQ(a.sent_bytes - a_before.sent_bytes, bytes);
        EXPECT_EQ(a.received_messages, a_before.received_messages);
        EXPECT_EQ(b.received_messages - b_before.received_messages, messages);
        EXPECT_EQ(b.received_bytes - b_before.received_bytes, bytes);
        EXPECT_EQ(b.sent_messages, b_before.sent_messages);
        EXPECT_EQ(a.put_bytes, 3000u);
        EXPECT_EQ(a.got_bytes, 700u);
        EXPECT_EQ(b.put_bytes + b.got_bytes, 0u);
    }
}

TEST_P(transport_suite, traffic_is_told_by_peer) {
    node& hub = open();
    connection first = connect(open(), hub), second = connect(open(), hub);
    const auto* const counts = dynamic_cast<const detail::traffic_counts*>(&hub.end());
    if (counts == nullptr) GTEST_SKIP() << "this port does not count";
    const auto received = [&](peer_id from) { return counts->traffic_with(from).received_bytes; };
    const std::uint64_t of_first = received(first.a_at_b), of_second = received(second.a_at_b);
    complete(first.a, request::send(first.b_at_a, 1, patterned(11, 1)));
    next_arrival(hub);
    complete(second.a, request::send(second.b_at_a, 1, patterned(300, 1)));
    next_arrival(hub);
    EXPECT_EQ(received(first.a_at_b) - of_first, 11u);
    EXPECT_EQ(received(second.a_at_b) - of_second, 300u);
    EXPECT_EQ(received(peer_id{~std::uint64_t{0}}), 0u);
}

}  // namespace
}  // namespace amalgam::conformance
