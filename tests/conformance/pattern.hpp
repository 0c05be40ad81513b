#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include <gtest/gtest.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/hash.hpp>

namespace amalgam::conformance {

/// In memory that no transfer may write.
inline constexpr std::byte untouched{0x5a};

/// Eight bytes of the infinite pattern of `seed`, at position 8 * `index`.
constexpr std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
    return mix(seed * 0x9e3779b97f4a7c15u + index);
}

/// Fills `bytes` with the pattern of `seed`, starting at position `from`.
inline void fill_pattern(mutable_bytes bytes, std::uint64_t seed, std::uint64_t from = 0) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
        std::byte word[8];
        store_le(word, pattern_word(seed, (from + done) / 8));
        std::size_t skip = (from + done) % 8;
        std::size_t now = std::min(bytes.size() - done, 8 - skip);
        std::memcpy(bytes.data() + done, word + skip, now);
        done += now;
    }
}

/// Where `bytes` first differ from the pattern; empty if they match.
inline std::optional<std::size_t> pattern_break(const_bytes bytes, std::uint64_t seed,
                                                std::uint64_t from = 0) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
        std::byte word[8];
        store_le(word, pattern_word(seed, (from + done) / 8));
        std::size_t skip = (from + done) % 8;
        std::size_t now = std::min(bytes.size() - done, 8 - skip);
        if (std::memcmp(bytes.data() + done, word + skip, now) != 0) return done;
        done += now;
    }
    return std::nullopt;
}

/// EXPECT_TRUE(is_pattern(bytes, seed)) reports where they differ, and their number.
inline testing::AssertionResult is_pattern(const_bytes bytes, std::uint64_t seed,
                                           std::uint64_t from = 0) {
    if (auto at = pattern_break(bytes, seed, from))
        return testing::AssertionFailure() << "byte " << *at << " of " << bytes.size()
                                           << " is not of the pattern with seed " << seed;
    return testing::AssertionSuccess();
}

/// Whether every byte is `value`.
inline testing::AssertionResult is_all(const_bytes bytes, std::byte value) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != value)
            return testing::AssertionFailure()
                   << "byte " << i << " of " << bytes.size() << " was touched";
    return testing::AssertionSuccess();
}

}  // namespace amalgam::conformance
