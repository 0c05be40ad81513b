#pragma once

#include <cstdint>
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
void fill_pattern(mutable_bytes bytes, std::uint64_t seed, std::uint64_t from = 0) noexcept;

/// Where `bytes` first differ from the pattern; empty if they match.
std::optional<std::size_t> pattern_break(const_bytes bytes, std::uint64_t seed,
                                         std::uint64_t from = 0) noexcept;

/// EXPECT_TRUE(is_pattern(bytes, seed)) reports where they differ, and their number.
testing::AssertionResult is_pattern(const_bytes bytes, std::uint64_t seed, std::uint64_t from = 0);

/// Whether both are as many bytes, and the same: std::equal() goes byte by byte.
bool are_same(const_bytes one, const_bytes other) noexcept;

/// Whether every byte is `value`.
testing::AssertionResult is_all(const_bytes bytes, std::byte value);

}  // namespace amalgam::conformance
