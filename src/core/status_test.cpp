#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {
namespace {

TEST(status, every_code_has_a_name_of_its_own) {
    std::set<std::string_view> names;
    int known = 0;
    for (int code = 0; code < 256; ++code) {
        std::string_view text = name(static_cast<errc>(code));
        if (text == "unknown") continue;
        ++known;
        names.insert(text);
    }
    EXPECT_EQ(known, 19);
    EXPECT_EQ(names.size(), 19u);
}

TEST(status, no_code_is_ever_renumbered) {
    // They travel on the wire: add lines, never change one.
    constexpr std::pair<int, std::string_view> numbers[] = {
        {0, "ok"},
        {1, "timed_out"},
        {2, "overloaded"},
        {3, "corrupt"},
        {4, "unavailable"},
        {16, "unreachable"},
        {17, "disconnected"},
        {32, "invalid"},
        {33, "not_found"},
        {34, "denied"},
        {35, "mismatch"},
        {36, "unsupported"},
        {37, "too_large"},
        {38, "in_use"},
        {48, "canceled"},
        {49, "no_memory"},
        {50, "handler_failed"},
        {51, "closed"},
        {52, "internal"},
    };
    for (const auto& [number, text] : numbers)
        EXPECT_EQ(name(static_cast<errc>(number)), text);
    static_assert(static_cast<int>(errc::unavailable) == 4);
    static_assert(static_cast<int>(errc::disconnected) == 17);
    static_assert(static_cast<int>(errc::denied) == 34);
    static_assert(static_cast<int>(errc::in_use) == 38);
    static_assert(static_cast<int>(errc::handler_failed) == 50);
    static_assert(static_cast<int>(errc::internal) == 52);
}

TEST(status, text_shows_the_native_code_when_there_is_one) {
    EXPECT_EQ(to_string(status{}), "ok");
    EXPECT_EQ(to_string(status{errc::timed_out}), "timed_out");
    EXPECT_NE(to_string(status{errc::disconnected, 104}).find("104"), std::string::npos);
}

TEST(status, a_handlers_own_code_is_told_only_where_a_handler_failed) {
    EXPECT_EQ((status{errc::handler_failed, static_cast<int>(errc::not_found)}.handler_code()),
              errc::not_found);
    EXPECT_EQ((status{errc::handler_failed, 0}.handler_code()), errc::handler_failed);
    EXPECT_EQ((status{errc::handler_failed, -1}.handler_code()), errc::handler_failed);
    EXPECT_EQ((status{errc::disconnected, 33}.handler_code()), errc::ok);
    EXPECT_EQ((error{status{errc::handler_failed, 33}, "no such row"}.handler_code()),
              errc::not_found);
}

TEST(result, holds_a_value_that_can_be_moved_out) {
    result<std::unique_ptr<int>> r(std::make_unique<int>(3));
    ASSERT_TRUE(r.ok());
    EXPECT_TRUE(r.code().ok());
    EXPECT_EQ(*std::move(r).value(), 3);
}

TEST(result, without_a_value_throws_its_sentence) {
    result<int> r(errc::not_found, "no such thing");
    EXPECT_FALSE(r);
    EXPECT_EQ(r.sentence(), "no such thing");
    try {
        static_cast<void>(r.value());
        FAIL() << "no throw";
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::not_found);
        EXPECT_STREQ(wrong.what(), "no such thing");
    }
}

}  // namespace
}  // namespace amalgam
