#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>

#include "rpc/codec/sample_values.hpp"

namespace amalgam {
namespace {

/// The bytes of `values`, aligned like a message's body.
template <typename... T>
buffer encoded(const T&... values) {
    body into;
    archive_writer writer(into);
    writer(values...);
    buffer copy = buffer::of(into.size());
    if (into.size() != 0) std::memcpy(copy.data(), into.bytes().data(), into.size());
    return copy;
}

template <typename T>
T round_trip(const T& value) {
    const buffer bytes = encoded(value);
    archive_reader reader(bytes.bytes());
    T back{};
    reader(back);
    EXPECT_TRUE(reader.ok()) << reader.why();
    EXPECT_EQ(reader.remaining(), 0u);
    return back;
}

using samples::raw_style;
using samples::tree;

TEST(archive, not_a_number_comes_back) {
    EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
}

TEST(archive, trivially_serializable_types_and_numbers_take_their_own_size) {
    EXPECT_EQ(encoded(1, 2).size(), 8u);
    EXPECT_EQ(encoded(raw_style{}).size(), sizeof(raw_style));
    EXPECT_EQ(encoded(std::vector<raw_style>(10)).size(), 4 + 10 * sizeof(raw_style));
    EXPECT_EQ(encoded(std::vector<double>(3)).size(), 8 + 3 * sizeof(double));
}

TEST(archive, numbers_are_little_endian_and_blocks_aligned) {
    const buffer bytes =
        encoded(std::uint8_t{1}, std::uint32_t{0x04030201}, std::vector<std::uint16_t>{0x0605});
    const std::array<unsigned char, 12> expected{1, 1, 2, 3, 4, 1, 0, 0, 0, 0, 5, 6};
    ASSERT_EQ(bytes.size(), expected.size());
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0);
}

TEST(archive, views_are_read_in_place_and_aligned) {
    const buffer bytes = encoded(std::string("abc"), std::vector<double>{1, 2});
    archive_reader reader(bytes.bytes());
    std::string_view text;
    std::span<const double> numbers;
    reader(text, numbers);
    EXPECT_EQ(text, "abc");
    ASSERT_EQ(numbers.size(), 2u);
    EXPECT_EQ(numbers[1], 2);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % alignof(double), 0u);
    EXPECT_GE(reinterpret_cast<const std::byte*>(numbers.data()), bytes.data());
    EXPECT_TRUE(reader.ok());
}

TEST(archive, a_body_grows_past_its_inline_room_and_keeps_what_it_has) {
    buffer_pool pool;
    body into(&pool);
    archive_writer writer(into);
    for (std::uint32_t i = 0; i < 100'000; ++i)
        writer(i);
    archive_reader reader(into.bytes());
    for (std::uint32_t i = 0; i < 100'000; ++i) {
        std::uint32_t value = 0;
        reader(value);
        ASSERT_EQ(value, i);
    }
    std::memset(into.front(body::headroom), 9, body::headroom);
    EXPECT_EQ(into.front(body::headroom) + body::headroom, into.bytes().data());
    EXPECT_EQ(into.bytes()[4], std::byte{1});
}

// ---- untrusted bytes

template <typename T>
std::string_view refusal(const buffer& bytes, std::size_t length) {
    archive_reader reader(bytes.bytes().subspan(0, length));
    T value{};
    reader(value);
    return reader.ok() ? "" : reader.why();
}

TEST(archive, more_elements_than_a_count_can_say_are_too_large) {
    body into;
    archive_writer writer(into);
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
    writer.count(most);
    const std::size_t before = into.size();
    try {
        writer.count(most + 1);
        FAIL() << "nothing was thrown";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::too_large);
    }
    EXPECT_EQ(into.size(), before);
}

TEST(archive, an_index_past_the_last_alternative_is_refused) {
    const buffer bytes = encoded(std::uint8_t{3}, 0);
    EXPECT_EQ((refusal<std::variant<int, double>>(bytes, bytes.size())),
              "a variant's index is out of range");
}

TEST(archive, endless_nesting_is_refused) {
    // Each node: value 0, no name, no children, a next one.
    body into;
    archive_writer writer(into);
    for (int i = 0; i < 100'000; ++i)
        writer(std::uint16_t{0}, std::string(), std::uint32_t{0}, true);
    archive_reader reader(into.bytes());
    tree root;
    reader(root);
    EXPECT_EQ(reader.why(), "values are nested too deeply");
}

TEST(archive, reading_past_a_fault_gives_zeros_and_ends_loops) {
    const buffer bytes = encoded(std::uint8_t{1});
    archive_reader reader(bytes.bytes());
    std::uint64_t number = 5;
    std::string text = "old";
    reader(number, text);
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(number, 0u);
    EXPECT_EQ(text, "");
    EXPECT_EQ(reader.remaining(), 0u);
}

}  // namespace
}  // namespace amalgam
