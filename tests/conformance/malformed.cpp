#include <vector>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

TEST_P(transport_suite, malformed_bytes_end_their_connection_and_harm_nobody_else) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    if (!traits().send_garbage)
        GTEST_SKIP() << "this transport's test does not say how to send garbage";
    std::uint64_t seeds = is_brief() ? 40 : 200;
    child_process& vandal = spawn([&](channel& parent) {
        std::string address = parent.hear();
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            traits().send_garbage(address, seed);
            parent.say(std::to_string(seed));
        }
    });
    child_process& friendly = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    served told = served::from_text(hear(friendly));
    peer_id honest = reach(*this, here, told.address);
    mutable_bytes memory = zeroed(4096);
    region readable = here.end().open_region(memory, access::read_write).value();
    operation& waiting = start(here, request::receive(honest, 1, zeroed(8)));

    vandal.line().say(here.end().address());
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        EXPECT_EQ(hear(vandal), std::to_string(seed)) << "the connection was not ended";
        expect_echo(*this, here, honest);
        ASSERT_EQ(here.open_operations(), 1u);
    }
    EXPECT_EQ(vandal.join(), 0);
    EXPECT_TRUE(here.arrived.empty()) << "garbage became a message";
    EXPECT_TRUE(is_all(memory, std::byte{0}));
    EXPECT_FALSE(here.has_lost(honest));
    EXPECT_TRUE(waiting.pending());
    // New peers can still connect.
    connect(open(), here);
}

}  // namespace
}  // namespace amalgam::conformance
