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

TEST(Text, OfBytesHasTwoDigitsEach) {
    constexpr std::array bytes{std::byte{0x00}, std::byte{0x0f}, std::byte{0xa0}, std::byte{0xff}};
    EXPECT_EQ(to_hex(bytes), "000fa0ff");
    EXPECT_EQ(to_hex({}), "");
}

}  // namespace
}  // namespace amalgam::detail
