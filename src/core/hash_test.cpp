#include <set>

#include <gtest/gtest.h>

#include <amalgam/core/hash.hpp>

namespace amalgam {
namespace {

// The published vectors of FNV-1a, 64 bits. They travel on the wire: never change them.
static_assert(fnv1a("") == 0xcbf29ce484222325u);
static_assert(fnv1a("a") == 0xaf63dc4c8601ec8cu);
static_assert(fnv1a("foobar") == 0x85944171f73967e8u);

TEST(hash, fnv1a_continues_from_a_seed) {
    EXPECT_EQ(fnv1a("bc", fnv1a("a")), fnv1a("abc"));
}

TEST(hash, fnv1a_takes_bytes_past_127_as_unsigned) {
    EXPECT_EQ(fnv1a("\xff"), (0xcbf29ce484222325u ^ 0xffu) * 0x100000001b3u);
}

TEST(hash, mix_keeps_small_numbers_apart_in_the_low_bits) {
    std::set<std::uint64_t> low;
    for (std::uint64_t i = 0; i < 256; ++i)
        low.insert(mix(i << 32) & 0xffffff);
    EXPECT_GT(low.size(), 250u);
}

}  // namespace
}  // namespace amalgam
