#include <vector>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

/// For handshakes that wait for one another on a busy machine; nobody goes missing here.
port_options patient() {
    port_options options;
    options.silence_limit = patience();
    return options;
}

TEST_P(transport_suite, fifty_callers_of_one_are_told_apart_and_answered) {
    node& hub = open(patient());
    std::vector<connection> all;
    for (int i = 0; i < 50; ++i)
        all.push_back(connect(open(patient()), hub));
    hub.on_arrival = [&](message& got) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].a_at_b != got.from()) continue;
            EXPECT_TRUE(is_pattern(got.bytes(), i));
            hub.try_post(request::send(got.from(), got.tag(), patterned(20, i + 1000)));
        }
    };
    constexpr std::uint64_t rounds = 20;
    for (std::uint64_t round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < all.size(); ++i)
            start(all[i].a, request::send(all[i].b_at_a, round, patterned(round * 300, i)));
    for (std::uint64_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            arrival answer = next_arrival(all[i].a);
            ASSERT_EQ(answer.tag, round);
            ASSERT_TRUE(is_pattern(answer.bytes, i + 1000));
        }
    }
}

TEST_P(transport_suite, eight_ports_talk_all_to_all) {
    constexpr std::size_t count = 8;
    std::uint64_t rounds = is_brief() ? 30 : 150;
    std::vector<node*> all;
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(&open(patient()));
    std::vector<std::vector<peer_id>> to(count);
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < count; ++j)
            to[i].push_back(i == j ? peer_id{}
                                   : all[i]->end().lookup(all[j]->end().address()).value());
    constexpr std::size_t sizes[] = {8, 0, 20000, 64, 100000, 1};
    const_bytes bytes = patterned(100000, 1);
    // A tag holds the sender and the message's number.
    std::vector<std::uint64_t> next(count * count, 0);
    std::uint64_t came = 0;
    for (std::size_t j = 0; j < count; ++j) {
        all[j]->on_arrival = [&, j](message& got) {
            std::size_t i = got.tag() >> 32;
            std::uint64_t number = got.tag() & 0xffffffff;
            EXPECT_EQ(number, next[i * count + j]++);
            EXPECT_EQ(got.bytes().size(), sizes[number % std::size(sizes)]);
            EXPECT_TRUE(is_pattern(got.bytes(), 1));
            ++came;
        };
    }
    for (std::uint64_t number = 0; number < rounds; ++number)
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < count; ++j)
                if (i != j)
                    start(*all[i], request::send(to[i][j], std::uint64_t(i) << 32 | number,
                                                 bytes.first(sizes[number % std::size(sizes)])));
    until("all messages", [&] { return came == rounds * count * (count - 1); });
}

}  // namespace
}  // namespace amalgam::conformance
