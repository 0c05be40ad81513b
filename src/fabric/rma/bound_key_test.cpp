#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/extension/bound_key.hpp>

namespace amalgam::detail {
namespace {

TEST(bound_key, the_hash_gives_the_numbers_of_its_authors) {
    // SipHash-2-4 with the key 00 01 … 0f of the texts "", 00, 00 01, … (Aumasson and Bernstein).
    constexpr std::uint64_t low = 0x0706050403020100, high = 0x0f0e0d0c0b0a0908;
    std::array<std::byte, 15> text{};
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = std::byte(i);
    const const_bytes all(text);
    EXPECT_EQ(sip_hash(low, high, all.first(0)), 0x726fdb47dd0e0e31u);
    EXPECT_EQ(sip_hash(low, high, all.first(1)), 0x74f839c593dc67fdu);
    EXPECT_EQ(sip_hash(low, high, all.first(8)), 0x93f5f5799a932462u);
    EXPECT_EQ(sip_hash(low, high, all), 0xa129ca6149be45e5u);
}

TEST(bound_key, is_one_for_each_holder_and_region_and_the_same_each_time) {
    remote_key first;
    first.secret = random_u64();
    first.region = 7;
    first.incarnation = 8;
    first.bytes = 9;
    first.rights = access::read_write;
    remote_key second = first;
    second.region = 10;
    key_fingerprint alice, bob;
    alice.bytes[0] = 1;
    bob.bytes[31] = 1;
    std::vector<std::uint64_t> secrets;
    secrets.push_back(first.secret);  // The second region's is the same.
    for (const remote_key& each : {first, second}) {
        for (const remote_key& made :
             {bound_to(each, alice), bound_to(each, bob), bound_to(each, peer_id{1}),
              bound_to(each, peer_id{2}), bound_to_user(each, 1), bound_to_user(each, 2),
              bound_to_nobody(each), bound_to_nobody(each)}) {
            EXPECT_FALSE(each.grants(made, 0, 1, access::read));
            secrets.push_back(made.secret);
            remote_key otherwise_the_same = made;
            otherwise_the_same.secret = each.secret;
            EXPECT_EQ(otherwise_the_same, each);
        }
        EXPECT_EQ(bound_to(each, alice), bound_to(each, alice));
        EXPECT_EQ(bound_to(each, peer_id{1}), bound_to(each, peer_id{1}));
        EXPECT_EQ(bound_to_user(each, 1), bound_to_user(each, 1));
    }
    std::sort(secrets.begin(), secrets.end());
    EXPECT_EQ(std::adjacent_find(secrets.begin(), secrets.end()), secrets.end());
}

}  // namespace
}  // namespace amalgam::detail
