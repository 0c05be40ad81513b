#include "rpc/peers/lost_peers.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam::detail {
namespace {

struct lost_peers_test : testing::Test {
    loop_network net;
    engine owner{net.port("owner")};  // Only to provide an owner for peers.
    lost_peers all;

    peer numbered(std::uint64_t number) { return peer(owner.core(), 0, 0, peer_id{number}); }
    void lose(std::uint64_t number, bool looked_up) {
        all.keep(numbered(number), {"loop://" + std::to_string(number), looked_up, {}});
    }
    bool knows(std::uint64_t number) {
        const lost_peer* const found = all.find(numbered(number));
        return found != nullptr && found->address == "loop://" + std::to_string(number);
    }
};

TEST_F(lost_peers_test, the_latest_4096_that_were_looked_up_keep_their_address) {
    for (std::uint64_t i = 1; i <= 4096; ++i)
        lose(i, true);
    EXPECT_TRUE(knows(1) && knows(4096));
    lose(4097, true);
    lose(4098, true);
    EXPECT_FALSE(knows(1));
    EXPECT_FALSE(knows(2));
    for (std::uint64_t i = 3; i <= 4098; ++i)
        ASSERT_TRUE(knows(i)) << i;
}

TEST_F(lost_peers_test, the_latest_256_that_came_keep_theirs_apart_from_those) {
    lose(100'000, true);
    for (std::uint64_t i = 1; i <= 300; ++i)
        lose(i, false);
    EXPECT_TRUE(knows(100'000));
    for (std::uint64_t i = 1; i <= 300; ++i)
        ASSERT_EQ(knows(i), i > 300 - 256) << i;
}

}  // namespace
}  // namespace amalgam::detail
