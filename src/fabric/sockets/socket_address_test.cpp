#include "fabric/sockets/socket_address.hpp"

#include <gtest/gtest.h>
#include <net/if.h>

namespace amalgam::detail {
namespace {

TEST(socket_address, reads_and_writes_both_families) {
    EXPECT_EQ(socket_address::numeric("10.0.0.5", 7000)->uri(), "tcp://10.0.0.5:7000");
    EXPECT_EQ(socket_address::numeric("::1", 7000)->uri(), "tcp://[::1]:7000");
    EXPECT_EQ(socket_address::numeric("0:0:0:0:0:0:0:1", 1)->host(), "::1");
}

TEST(socket_address, a_zone_is_read_by_name_and_by_number) {
    unsigned loopback = ::if_nametoindex("lo");
    auto by_name = socket_address::numeric("fe80::1%lo", 5);
    ASSERT_TRUE(by_name);
    EXPECT_EQ(by_name->zone(), loopback);
    EXPECT_EQ(by_name->host(), "fe80::1%lo");
    EXPECT_EQ(socket_address::numeric("fe80::1%" + std::to_string(loopback), 5), by_name);
}

TEST(socket_address, an_unknown_zone_or_a_name_is_no_address) {
    EXPECT_FALSE(socket_address::numeric("fe80::1%nosuchif0", 5));
    EXPECT_FALSE(socket_address::numeric("localhost", 5));
    EXPECT_FALSE(socket_address::numeric("", 5));
    EXPECT_FALSE(socket_address::numeric("10.0.0", 5));
    EXPECT_FALSE(socket_address::numeric("10.0.0.1%lo", 5));
}

TEST(socket_address, ipv4_inside_ipv6_is_ipv4) {
    auto inside = socket_address::numeric("::ffff:10.0.0.5", 7);
    ASSERT_TRUE(inside);
    EXPECT_EQ(inside->family(), AF_INET);
    EXPECT_EQ(*inside, *socket_address::numeric("10.0.0.5", 7));
}

TEST(socket_address, knows_the_special_ones) {
    EXPECT_TRUE(socket_address::numeric("0.0.0.0", 0)->is_wildcard());
    EXPECT_TRUE(socket_address::numeric("::", 0)->is_wildcard());
    EXPECT_FALSE(socket_address::numeric("10.0.0.5", 0)->is_wildcard());
    EXPECT_TRUE(socket_address::numeric("127.8.8.8", 0)->is_loopback());
    EXPECT_TRUE(socket_address::numeric("::1", 0)->is_loopback());
    EXPECT_TRUE(socket_address::numeric("fe80::1", 0)->is_link_local());
    EXPECT_TRUE(socket_address::numeric("169.254.1.1", 0)->is_link_local());
    EXPECT_FALSE(socket_address::numeric("fd00::1", 0)->is_link_local());
}

TEST(socket_address, none_is_equal_to_no_address) {
    EXPECT_FALSE(socket_address());
    EXPECT_NE(socket_address(), *socket_address::numeric("0.0.0.0", 0));
    EXPECT_EQ(socket_address::far_end(-1), socket_address());
}

}  // namespace
}  // namespace amalgam::detail
