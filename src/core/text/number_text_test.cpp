#include <cerrno>
#include <clocale>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/detail/number_text.hpp>

namespace amalgam::detail {
namespace {

#ifdef __cpp_lib_to_chars
template <typename T>
void expect_as_from_chars(const std::string& text) {
    T wanted{}, got{};
    const char* const end = text.data() + text.size();
    const auto [stop, why] = std::from_chars(text.data(), end, wanted);
    const bool good = why == std::errc() && stop == end;
    EXPECT_EQ(read_floating(text, got), good) << text;
    if (good) {
        EXPECT_TRUE(got == wanted || (got != got && wanted != wanted)) << text;
    }
    EXPECT_EQ(number_in<T>(text).has_value(), good) << text;
}

TEST(number_text, a_floating_point_number_is_read_as_the_standard_library_does) {
    for (const std::string text : {"0",
                                   "-0",
                                   "1.5",
                                   ".5",
                                   "5.",
                                   "-2.5e-3",
                                   "1e308",
                                   "1e309",
                                   "1e-400",
                                   "",
                                   "-",
                                   "+1",
                                   " 1",
                                   "1 ",
                                   "1,5",
                                   "0x10",
                                   "0x1p3",
                                   "inf",
                                   "-inf",
                                   "nan",
                                   "nano",
                                   "e5",
                                   "1e",
                                   "1.2.3",
                                   "--1",
                                   "- 1",
                                   "infinity",
                                   "1e38",
                                   "1e39",
                                   "3.14159265358979323846264338327950288",
                                   "9007199254740993",
                                   "-nan"}) {
        expect_as_from_chars<float>(text);
        expect_as_from_chars<double>(text);
        expect_as_from_chars<long double>(text);
    }
}
#endif

TEST(number_text, neither_the_locale_nor_errno_has_a_part_in_it) {
    errno = EDOM;
    double got = 0;
    EXPECT_FALSE(read_floating("1e999", got));
    EXPECT_EQ(errno, EDOM);
    if (std::setlocale(LC_NUMERIC, "de_DE.UTF-8") == nullptr) GTEST_SKIP() << "no such locale";
    EXPECT_TRUE(read_floating("1.5", got));
    std::setlocale(LC_NUMERIC, "C");
    EXPECT_EQ(got, 1.5);
}

TEST(number_text, a_long_text_is_read_up_to_its_limit) {
    double got = 0;
    EXPECT_TRUE(read_floating("1." + std::string(1000, '0'), got));
    EXPECT_EQ(got, 1);
    EXPECT_FALSE(read_floating("1." + std::string(2000, '0'), got));
}

TEST(number_text, an_integer_must_be_the_whole_text_and_fit) {
    EXPECT_EQ(number_in<int>("-17"), -17);
    EXPECT_EQ(number_in<std::uint8_t>("255"), 255);
    for (const char* wrong : {"", "256", "-1", "1 ", "x", "0x1"})
        EXPECT_FALSE(number_in<std::uint8_t>(wrong)) << wrong;
}

}  // namespace
}  // namespace amalgam::detail
