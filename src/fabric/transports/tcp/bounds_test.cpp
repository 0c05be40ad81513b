// What strangers can make a port hold: memory, connections, time.
#include <gtest/gtest.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

/// A raw peer whose hello was answered.
tcp_raw_peer greeted(tcp_test_port& here) {
    tcp_raw_peer raw(here.end->address());
    raw.send(encoded_hello({.incarnation = 1}).bytes());
    move_until({&here}, [&] { return raw.has_something(); });
    EXPECT_TRUE(raw.hear_hello());
    return raw;
}

TEST(bounds, memory_is_taken_as_the_bytes_of_a_message_arrive) {
    tcp_test_port here("tcp://127.0.0.1:0");
    std::deque<tcp_raw_peer> liars;
    for (int i = 0; i < 50; ++i) {
        liars.push_back(greeted(here));
        liars.back().send(to_wire({.bytes = 1u << 30, .kind = frame_kind::expected, .tag = 1}));
        liars.back().send(std::string(1000, 'x'));
    }
    move_until({&here}, [&] { return here.end->usage().queued_bytes >= 50u << 20; });
    EXPECT_EQ(here.end->usage().queued_bytes, 50u << 20) << "a step for each, not what it said";
    EXPECT_TRUE(here.lost.empty());
    liars.clear();
    move_until({&here}, [&] { return here.lost.size() == 50; });
    EXPECT_EQ(here.end->usage().queued_bytes, 0u);
    EXPECT_EQ(here.end->usage().pooled_bytes, 0u) << "the pool keeps what nobody uses";
}

TEST(bounds, a_message_of_many_steps_arrives_whole) {
    tcp_test_port here("tcp://127.0.0.1:0"), there("tcp://127.0.0.1:0");
    auto [to, back] = connect(here, there);
    std::string large(30'000'000, ' ');
    for (std::size_t i = 0; i < large.size(); ++i)
        large[i] = static_cast<char>(i * 7 + (i >> 13));
    tcp_test_port::operation op;
    ASSERT_NE(here.post(to, 3, large, op), posted::full);
    move_until({&here, &there}, [&] { return there.arrived.size() == 1; });
    EXPECT_TRUE(there.arrived.front().text == large);
    EXPECT_EQ(there.end->usage().queued_bytes, 0u);
}

}  // namespace
}  // namespace amalgam::detail
