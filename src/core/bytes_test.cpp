#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/bytes.hpp>

namespace amalgam {
namespace {

enum class colour : std::uint16_t { red = 0x0102 };

TEST(bytes, store_le_puts_the_low_byte_first_at_any_alignment) {
    std::array<std::byte, 9> raw{};
    store_le<std::uint64_t>(raw.data() + 1, 0x0102030405060708u);
    EXPECT_EQ(raw[0], std::byte{0});
    EXPECT_EQ(raw[1], std::byte{8});
    EXPECT_EQ(raw[8], std::byte{1});
    EXPECT_EQ(load_le<std::uint64_t>(raw.data() + 1), 0x0102030405060708u);
}

TEST(bytes, store_be_puts_the_high_byte_first_at_any_alignment) {
    std::array<std::byte, 9> raw{};
    store_be<std::uint64_t>(raw.data() + 1, 0x0102030405060708u);
    EXPECT_EQ(raw[0], std::byte{0});
    EXPECT_EQ(raw[1], std::byte{1});
    EXPECT_EQ(raw[8], std::byte{8});
    EXPECT_EQ(load_be<std::uint64_t>(raw.data() + 1), 0x0102030405060708u);
    store_be(raw.data(), colour::red);
    EXPECT_EQ(raw[1], std::byte{2});
    EXPECT_EQ(load_be<colour>(raw.data()), colour::red);
    store_be(raw.data(), std::uint32_t{0x01020304});
    EXPECT_EQ(raw[3], std::byte{4});
    EXPECT_EQ(load_be<std::uint32_t>(raw.data()), 0x01020304u);
}

TEST(bytes, floats_signs_and_enums_survive) {
    std::array<std::byte, 8> raw{};
    store_le(raw.data(), -2.5);
    EXPECT_EQ(load_le<double>(raw.data()), -2.5);
    store_le(raw.data(), std::int32_t{-7});
    EXPECT_EQ(load_le<std::int32_t>(raw.data()), -7);
    store_le(raw.data(), colour::red);
    EXPECT_EQ(raw[0], std::byte{2});
    EXPECT_EQ(load_le<colour>(raw.data()), colour::red);
}

TEST(bytes, swapping_reverses_the_order) {
    EXPECT_EQ(detail::byte_swapped(std::uint32_t{0x01020304}), 0x04030201u);
    EXPECT_EQ(detail::byte_swapped(std::uint8_t{5}), 5);
}

TEST(bytes, of_a_container_are_its_elements) {
    EXPECT_EQ(as_bytes_of(std::string("abc")).size(), 3u);
    std::vector<std::uint32_t> words{1, 2};
    EXPECT_EQ(as_bytes_of(words).data(), reinterpret_cast<const std::byte*>(words.data()));
    EXPECT_EQ(as_bytes_of(words).size(), 8u);
    as_writable_bytes_of(words)[0] = std::byte{9};
    EXPECT_EQ(load_le<std::uint32_t>(words.data()), 9u);
}

TEST(bytes, of_a_plain_object_are_its_own) {
    struct point {
        std::int32_t x, y;
    } p{1, 2};
    EXPECT_EQ(as_bytes_of(p).size(), sizeof(point));
    as_writable_bytes_of(p)[4] = std::byte{5};
    EXPECT_EQ(load_le<std::int32_t>(&p.y), 5);
}

}  // namespace
}  // namespace amalgam
