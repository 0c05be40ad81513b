#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/detail/printable.hpp>

namespace amalgam::detail {
namespace {

// Concatenated, so that no hexadecimal digit follows an escape.
const std::string next_line = "\xc2\x85", escape_sequence = "\xc2\x9b",
                  to_the_left = "\xe2\x80\xae", isolate = "\xe2\x81\xa6", mark = "\xe2\x80\x8f",
                  arabic_mark = "\xd8\x9c", separator = "\xe2\x80\xa8";

TEST(printable, escapes_controls_and_what_turns_text_around) {
    EXPECT_EQ(printable_name("a\x1b[2J\n\t\x7f"), "a\\x1b[2J\\x0a\\x09\\x7f");
    EXPECT_EQ(printable("a\x1b\n\tb"), "a\\x1b\n\tb");
    EXPECT_EQ(printable_name("a" + escape_sequence + "2J"), "a\\xc2\\x9b2J");
    EXPECT_EQ(printable_name(next_line + to_the_left + "x"), "\\xc2\\x85\\xe2\\x80\\xaex");
    for (const std::string& each :
         {next_line, escape_sequence, to_the_left, isolate, mark, arabic_mark, separator}) {
        EXPECT_TRUE(has_controls("ab" + each + "c")) << printable_name(each);
        EXPECT_EQ(printable("ab" + each + "c").find(each), std::string::npos);
    }
}

TEST(printable, leaves_names_of_every_script_as_they_are) {
    for (const std::string name : {"node7",
                                   "n\xc3\xb6"
                                   "de",
                                   "\xe7\xaf\x80", "\xd7\xa2\xd7\xa8", "\xc2\xa0", "\xe2\x82\xac",
                                   "\xe2\x80\x93", "\xe2\x80", "\xc2", "\xf0\x9f\x98\x80", ""}) {
        EXPECT_FALSE(has_controls(name)) << name;
        EXPECT_EQ(printable_name(name), name);
    }
}

}  // namespace
}  // namespace amalgam::detail
