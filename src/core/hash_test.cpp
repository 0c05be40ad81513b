#include <set>

#include <gtest/gtest.h>

#include <amalgam/core/hash.hpp>

namespace amalgam {
namespace {

// The published test vectors of 64-bit FNV-1a. They travel on the wire: never change them.
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

/// The `x` for which x ^ (x >> shift) is `y`.
constexpr std::uint64_t unshifted(std::uint64_t y, int shift) {
    std::uint64_t x = y;
    for (int known = shift; known < 64; known += shift)
        x = y ^ (x >> shift);
    return x;
}

/// The inverse of mix(): undoes each step, last one first.
constexpr std::uint64_t unmixed(std::uint64_t y) {
    const auto inverse = [](std::uint64_t odd) {
        std::uint64_t found = odd;  // Correct in 3 bits; each round doubles that.
        for (int round = 0; round < 5; ++round)
            found *= 2 - odd * found;
        return found;
    };
    y = unshifted(y, 31) * inverse(0x94d049bb133111ebu);
    y = unshifted(y, 27) * inverse(0xbf58476d1ce4e5b9u);
    return unshifted(y, 30);
}

TEST(hash, mix_takes_no_two_numbers_to_one) {
    std::uint64_t x = 1;
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_EQ(unmixed(mix(x)), x);
        x = x * 6364136223846793005u + 1442695040888963407u;
    }
    EXPECT_EQ(unmixed(mix(0)), 0u);
    EXPECT_EQ(unmixed(mix(~std::uint64_t{0})), ~std::uint64_t{0});
}

}  // namespace
}  // namespace amalgam
