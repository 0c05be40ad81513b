#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/archive.hpp>

#include "rpc/codec/sample_values.hpp"

// Bytes written by hand, from the rules of RFC 4506.
namespace amalgam {
namespace {

/// The bytes in hexadecimal, in units of four: "00000001 61620000".
template <typename... T>
std::string xdr(const T&... values) {
    body into;
    archive_writer writer(into, encoding::xdr);
    writer(values...);
    std::string text;
    for (std::size_t i = 0; i < into.size(); ++i) {
        constexpr char digits[] = "0123456789abcdef";
        if (i != 0 && i % 4 == 0) text += ' ';
        const auto byte = std::to_integer<unsigned>(into.bytes()[i]);
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

template <typename T>
std::string_view refusal(std::initializer_list<unsigned char> bytes) {
    archive_reader reader(std::as_bytes(std::span(bytes.begin(), bytes.size())), encoding::xdr);
    T value{};
    reader(value);
    return reader.ok() ? "" : reader.why();
}

TEST(xdr, numbers_take_four_or_eight_bytes_high_byte_first) {
    EXPECT_EQ(xdr(1), "00000001");
    EXPECT_EQ(xdr(-2), "fffffffe");
    EXPECT_EQ(xdr(std::int8_t{-1}), "ffffffff");
    EXPECT_EQ(xdr(std::uint8_t{255}), "000000ff");
    EXPECT_EQ(xdr(std::int16_t{-300}), "fffffed4");
    EXPECT_EQ(xdr(std::uint16_t{65535}), "0000ffff");
    EXPECT_EQ(xdr('A'), "00000041");
    EXPECT_EQ(xdr('\xff'), "000000ff");
    EXPECT_EQ(xdr(std::byte{7}), "00000007");
    EXPECT_EQ(xdr(std::uint64_t{0x0102030405060708}), "01020304 05060708");
    EXPECT_EQ(xdr(std::int64_t{-1}), "ffffffff ffffffff");
    EXPECT_EQ(xdr(samples::colour::blue), "000001f4");
    EXPECT_EQ(xdr(samples::small_colour::red), "ffffffff");
}

TEST(xdr, floats_are_ieee_754) {
    EXPECT_EQ(xdr(1.0f), "3f800000");
    EXPECT_EQ(xdr(-2.5f), "c0200000");
    EXPECT_EQ(xdr(1.0), "3ff00000 00000000");
    EXPECT_EQ(xdr(-0.1), "bfb99999 9999999a");
}

TEST(xdr, bools_and_optional_data_are_ints) {
    EXPECT_EQ(xdr(true, false), "00000001 00000000");
    EXPECT_EQ(xdr(std::optional<int>{}), "00000000");
    EXPECT_EQ(xdr(std::optional<int>{5}), "00000001 00000005");
    EXPECT_EQ(xdr(std::make_unique<std::string>("x")), "00000001 00000001 78000000");
}

TEST(xdr, strings_and_opaque_data_have_a_length_and_zeros_up_to_four) {
    // The example in RFC 4506, section 7, has the string "sillyprog".
    EXPECT_EQ(xdr(std::string("sillyprog")), "00000009 73696c6c 7970726f 67000000");
    EXPECT_EQ(xdr(std::string()), "00000000");
    EXPECT_EQ(xdr(std::vector<std::byte>(4, std::byte{9})), "00000004 09090909");
    EXPECT_EQ(xdr(std::vector<std::uint8_t>{1, 2, 3, 4, 5}), "00000005 01020304 05000000");
    EXPECT_EQ(xdr(std::array<char, 6>{'a', 'b', 'c', 'd', 'e', 'f'}), "61626364 65660000");
}

TEST(xdr, arrays_have_a_count_when_their_length_varies) {
    EXPECT_EQ(xdr(std::vector<int>{1, -1}), "00000002 00000001 ffffffff");
    EXPECT_EQ(xdr(std::vector<std::int16_t>{1, -1}), "00000002 00000001 ffffffff");
    EXPECT_EQ(xdr(std::vector<double>{1}), "00000001 3ff00000 00000000");
    EXPECT_EQ(xdr(std::vector<bool>{true}), "00000001 00000001");
    EXPECT_EQ(xdr(std::vector<std::string>{"a", ""}), "00000002 00000001 61000000 00000000");
    EXPECT_EQ(xdr(std::array<std::uint16_t, 2>{1, 2}), "00000001 00000002");
    EXPECT_EQ(xdr(std::vector<std::array<char, 2>>{{'a', 'b'}, {'c', 'd'}}),
              "00000002 61620000 63640000");
    EXPECT_EQ(xdr(std::map<int, bool>{{7, true}}), "00000001 00000007 00000001");
}

TEST(xdr, a_union_is_its_discriminant_and_the_arm) {
    using choice = std::variant<int, std::string, std::monostate>;
    EXPECT_EQ(xdr(choice{7}), "00000000 00000007");
    EXPECT_EQ(xdr(choice{"x"}), "00000001 00000001 78000000");
    EXPECT_EQ(xdr(choice{std::monostate{}}), "00000002");
}

TEST(xdr, structures_are_their_members_and_trivial_ones_opaque) {
    EXPECT_EQ(xdr(samples::member_style{1, "a"}), "00000001 00000001 61000000");
    EXPECT_EQ(xdr(std::complex<float>(1, -2.5f)), "3f800000 c0200000");
    EXPECT_EQ(xdr(std::bitset<10>(0b10'0000'0001)), "01020000");
    EXPECT_EQ(xdr(samples::raw_pixel{1, 2, 3}), "01020300");
    EXPECT_EQ(xdr(std::vector<samples::raw_pixel>{{1, 2, 3}, {4, 5, 6}}),
              "00000002 01020300 04050600");
}

TEST(xdr, padding_is_zero_whatever_was_in_the_memory_before) {
    for (std::size_t size = 0; size < 9; ++size) {
        body into;
        std::memset(into.extend(32), 0xff, 32);
        into.clear();
        archive_writer writer(into, encoding::xdr);
        writer(std::string(size, 'x'));
        std::string expected{'\0', '\0', '\0', static_cast<char>(size)};
        expected += std::string(size, 'x');
        expected.resize((expected.size() + 3) / 4 * 4);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(into.bytes().data()), into.size()),
                  expected);
    }
}

TEST(xdr, numbers_out_of_their_range_are_refused) {
    constexpr std::string_view why = "a number is out of range for its type";
    EXPECT_EQ(refusal<std::uint8_t>({0, 0, 1, 0}), why);
    EXPECT_EQ(refusal<std::int8_t>({0, 0, 0, 0x80}), why);
    EXPECT_EQ(refusal<std::int8_t>({0xff, 0xff, 0xff, 0x80}), "");
    EXPECT_EQ(refusal<samples::colour>({0, 1, 0, 0}), why);
    EXPECT_EQ(refusal<std::vector<std::int16_t>>({0, 0, 0, 1, 0, 0, 0x80, 0}), why);
    EXPECT_EQ(refusal<bool>({0, 0, 0, 2}), "a bool is neither 0 nor 1");
}

TEST(xdr, views_of_bytes_are_in_place_and_of_numbers_decoded) {
    body into;
    archive_writer writer(into, encoding::xdr);
    const std::vector<double> numbers{1.5, -2};
    writer(std::string("abcde"), std::vector<std::byte>(3, std::byte{4}), numbers,
           std::vector<double>{}, std::vector<std::uint16_t>(5000, 7));
    archive_reader reader(into.bytes(), encoding::xdr);
    std::string_view text;
    std::span<const std::byte> bytes;
    std::span<const double> decoded, none;
    std::span<const std::uint16_t> many;
    reader(text, bytes, decoded, none, many);
    ASSERT_TRUE(reader.ok()) << reader.why();
    EXPECT_EQ(reader.remaining(), 0u);
    EXPECT_EQ(text, "abcde");
    EXPECT_EQ(static_cast<const void*>(text.data()), into.bytes().data() + 4);
    EXPECT_EQ(bytes.data(), into.bytes().data() + 16);
    EXPECT_TRUE(std::ranges::equal(decoded, numbers));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(decoded.data()) % alignof(double), 0u);
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(std::ranges::count(many, 7), 5000);
}

TEST(xdr, decoded_views_share_blocks_so_that_many_small_ones_take_little) {
    detail::view_room room;
    std::size_t bytes = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::byte* const at = room.take(3, 1);
        std::byte* const number = room.take(8, 8);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(number) % 8, 0u);
        std::memset(at, 1, 3);
        std::memset(number, 2, 8);
        bytes += 11;
    }
    EXPECT_LE(room.capacity(), 2 * bytes + detail::view_room::block_bytes);
    room.take(100'000, 64);
    EXPECT_LE(room.capacity(), 2 * bytes + detail::view_room::block_bytes + 100'000);
}

TEST(xdr, a_view_that_is_not_aligned_in_the_message_is_aligned_all_the_same) {
    for (const encoding as : {encoding::native, encoding::xdr}) {
        body into;
        archive_writer writer(into, as);
        writer(std::vector<samples::raw_style>{{1, 2}, {3, 4}});
        // Shifted by one byte: nothing is aligned for its type.
        buffer moved = buffer::of(into.size() + 1);
        std::memcpy(moved.data() + 1, into.bytes().data(), into.size());
        archive_reader reader(const_bytes(moved.bytes()).subspan(1), as);
        std::span<const samples::raw_style> view;
        reader(view);
        ASSERT_EQ(view.size(), 2u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % alignof(samples::raw_style), 0u);
        EXPECT_EQ(view[1].y, 4);
    }
}

}  // namespace
}  // namespace amalgam
