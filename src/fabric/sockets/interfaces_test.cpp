#include "fabric/sockets/interfaces.hpp"

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

socket_address at(std::string_view host) {
    return *socket_address::numeric(host, 0);
}

const std::vector<interface_address> machine = {
    {"lo", at("127.0.0.1"), true},    {"eth0", at("fe80::5"), true},
    {"eth0", at("fd00::5"), true},    {"eth0", at("10.0.0.5"), true},
    {"ib0", at("fd01::5"), true},     {"ib0", at("fe80::6"), true},
    {"down0", at("10.9.9.9"), false}, {"bare0", socket_address(), true}};

TEST(interfaces, ipv4_is_preferred_then_routable_ipv6) {
    EXPECT_EQ(preferred_address(machine, "eth0"), at("10.0.0.5"));
    EXPECT_EQ(preferred_address(machine, "ib0"), at("fd01::5"));
    EXPECT_FALSE(preferred_address(machine, "bare0"));
    EXPECT_FALSE(preferred_address(machine, "nosuch0"));
}

TEST(interfaces, the_text_names_each_once_with_its_addresses) {
    EXPECT_EQ(to_text(machine),
              "lo (127.0.0.1), eth0 (fe80::5, fd00::5, 10.0.0.5), ib0 (fd01::5, fe80::6), "
              "down0 (10.9.9.9), bare0 (no address)");
}

TEST(interfaces, loopback_and_listed_addresses_are_own) {
    EXPECT_TRUE(is_own(machine, at("127.0.0.77")));
    EXPECT_TRUE(is_own(machine, at("10.0.0.5")));
    EXPECT_FALSE(is_own(machine, at("10.0.0.6")));
}

TEST(interfaces, loopback_is_advertised_only_when_there_is_nothing_else) {
    const std::vector<interface_address> lonely = {{"lo", at("127.0.0.1"), true},
                                                   {"down0", at("10.9.9.9"), false}};
    EXPECT_EQ(advertised_address(lonely, AF_INET).address, at("127.0.0.1"));
    const std::vector<interface_address> unrouted = {{"lo", at("127.0.0.1"), true},
                                                     {"x0", at("203.0.113.9"), true}};
    EXPECT_EQ(advertised_address(unrouted, AF_INET).interface, "x0");
    EXPECT_FALSE(advertised_address(lonely, AF_INET6).address);
}

TEST(interfaces, this_machine_has_a_loopback_and_no_wildcards) {
    auto all = interface_addresses();
    ASSERT_FALSE(all.empty());
    for (const interface_address& one : all)
        EXPECT_FALSE(one.address.is_wildcard());
    EXPECT_TRUE(is_own(all, at("127.0.0.1")));
    EXPECT_EQ(preferred_address(all, "lo").host().substr(0, 4), "127.");
}

}  // namespace
}  // namespace amalgam::detail
