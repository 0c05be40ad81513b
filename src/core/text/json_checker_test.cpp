#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/json_checker.hpp>

namespace amalgam {
namespace {

using json = nlohmann::json;

std::optional<std::string> repeated_in(const std::string& text) {
    json_checker<json> checker;
    EXPECT_FALSE(json::parse(text, std::ref(checker)).is_discarded());
    return checker.repeated_key();
}

TEST(json_checker, finds_the_first_key_that_its_object_has_twice) {
    EXPECT_EQ(repeated_in(R"({"a": {"b": 1, "c": 2}, "b": {"a": 1}})"), std::nullopt);
    EXPECT_EQ(repeated_in(R"([{"a": 1}, {"a": 1}])"), std::nullopt);
    EXPECT_EQ(repeated_in(R"({"a": 1, "b": {"c": 1, "d": 2, "c": 3}, "a": 2})"), "c");
    EXPECT_EQ(repeated_in(R"({"": 1, "": 2})"), "");
}

TEST(json_checker, ends_the_parsing_of_more_levels_than_asked_for) {
    const auto levels = [](std::size_t number) {
        return std::string(number, '[') + std::string(number, ']');
    };
    json_checker<json> two(2), again(2), usual;
    EXPECT_EQ(json::parse(levels(2), std::ref(two)), json::parse("[[]]"));
    EXPECT_THROW(json all = json::parse(levels(3), std::ref(again)), too_many_json_levels);
    EXPECT_THROW(json all = json::parse(levels(200'000), std::ref(usual)), too_many_json_levels);
}

}  // namespace
}  // namespace amalgam
