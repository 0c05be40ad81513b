#include <array>

#include <gtest/gtest.h>

#include <amalgam/core/detail/text.hpp>

namespace amalgam::detail {
namespace {

TEST(Text, IsTrimmedAtItsEndsOnly) {
    EXPECT_EQ(trimmed(" \tone  two\r"), "one  two");
    EXPECT_EQ(trimmed(" \t\r"), "");
    EXPECT_EQ(trimmed(""), "");
}

TEST(Text, HasDigitsOfBothSizes) {
    EXPECT_EQ(hex_digit('0'), 0);
    EXPECT_EQ(hex_digit('9'), 9);
    EXPECT_EQ(hex_digit('a'), 10);
    EXPECT_EQ(hex_digit('F'), 15);
    for (const char other : {'g', 'G', '/', ':', '@', '`', ' ', '\xff'})
        EXPECT_EQ(hex_digit(other), -1) << other;
}

TEST(Text, OfBytesHasTwoDigitsEach) {
    constexpr std::array bytes{std::byte{0x00}, std::byte{0x0f}, std::byte{0xa0}, std::byte{0xff}};
    EXPECT_EQ(to_hex(bytes), "000fa0ff");
    EXPECT_EQ(to_hex({}), "");
}

}  // namespace
}  // namespace amalgam::detail
