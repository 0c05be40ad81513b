#include <gtest/gtest.h>

#include <amalgam/core/detail/json_text.hpp>

namespace amalgam::detail {
namespace {

std::string quoted(std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
}

TEST(json_text, escapes_what_json_forbids) {
    EXPECT_EQ(quoted("a\"b\\c\nd\te"), R"("a\"b\\c\nd\u0009e")");
    EXPECT_EQ(quoted(std::string_view("\0", 1)), R"("\u0000")");
    EXPECT_EQ(quoted(""), R"("")");
}

TEST(json_text, keeps_valid_utf8) {
    EXPECT_EQ(quoted("é€😀"), "\"é€😀\"");
    EXPECT_EQ(quoted("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\"");
}

TEST(json_text, replaces_each_byte_of_invalid_utf8) {
    EXPECT_EQ(quoted("\xff"), R"("\ufffd")");
    EXPECT_EQ(quoted("a\xc3"), R"("a\ufffd")");                              // Truncated.
    EXPECT_EQ(quoted("\xc0\x80"), R"("\ufffd\ufffd")");                      // Overlong.
    EXPECT_EQ(quoted("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");            // A surrogate.
    EXPECT_EQ(quoted("\xf4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");  // Too large.
    EXPECT_EQ(quoted("\xe2\x82x"), R"("\ufffd\ufffdx")");
}

}  // namespace
}  // namespace amalgam::detail
