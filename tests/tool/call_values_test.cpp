#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/type_name.hpp>

#include "call/json_values.hpp"

namespace amalgam::tool {
namespace {

/// What is encoded from JSON is what archives write, and is read back as the JSON.
template <typename... T>
void expect_same(const std::string& text, const T&... values) {
    const call_signature signature = parse_signature(signature_text<void(T...)>());
    EXPECT_EQ(encode(signature, parse_arguments(text)).bytes, raw_values::of(values...).bytes)
        << text;
    [[maybe_unused]] const auto back = [](const auto& value) {
        using type = std::remove_cvref_t<decltype(value)>;
        const call_signature result = parse_signature(signature_text<type()>());
        return to_text(decode(result.result, raw_values::of(value)));
    };
    std::string all;
    ((all += (all.empty() ? "" : ",") + back(values)), ...);
    EXPECT_EQ("[" + all + "]", text);
}

enum class color : std::uint8_t { red, green };

TEST(call_values, are_encoded_as_archives_do_and_decoded_again) {
    expect_same("[]");
    expect_same("[-1,255,-32768,65535]", std::int8_t{-1}, std::uint8_t{255}, std::int16_t{-32768},
                std::uint16_t{65535});
    expect_same("[-2147483648,4294967295]", std::int32_t{-2147483647 - 1}, 4294967295u);
    expect_same("[-9223372036854775808,18446744073709551615]",
                std::numeric_limits<std::int64_t>::min(),
                std::numeric_limits<std::uint64_t>::max());
    expect_same("[0.1,-2.5]", 0.1f, -2.5);
    expect_same(R"([true,"c","text ä"])", true, 'c', std::string("text ä"));
    expect_same("[1,[1.5,2.5]]", std::int8_t{1}, std::vector<double>{1.5, 2.5});
    expect_same("[1,[[1,2],[3,4]]]", 'x' == 'x' ? std::int8_t{1} : std::int8_t{0},
                std::vector<std::array<int, 2>>{{1, 2}, {3, 4}});
    expect_same(R"([["a","b"],[true,false]])", std::vector<std::string>{"a", "b"},
                std::vector<bool>{true, false});
    expect_same(R"([{"a":1,"b":2},[[1,"x"]]])", std::map<std::string, int>{{"a", 1}, {"b", 2}},
                std::map<int, std::string>{{1, "x"}});
    expect_same("[null,7,[1,2]]", std::optional<int>(), std::optional<int>(7),
                std::set<long>{1, 2});
    expect_same(R"([[1,"two"],[[0.5,[]]]])", std::pair<int, std::string>(1, "two"),
                std::vector<std::tuple<double, std::vector<int>>>{{0.5, {}}});
    expect_same(R"([[1,"x"],1])", std::variant<int, std::string>("x"), color::green);
    expect_same("[2500]", std::chrono::milliseconds(2500));
    expect_same(R"(["nan","inf","-inf"])", std::numeric_limits<double>::quiet_NaN(),
                std::numeric_limits<float>::infinity(), -std::numeric_limits<double>::infinity());
}

std::string refusal_of(const std::string& signature, const std::string& arguments) {
    try {
        encode(parse_signature(signature), parse_arguments(arguments));
    } catch (const error& why) {
        return why.what();
    }
    return "nothing was refused";
}

TEST(call_values, what_does_not_fit_is_refused_with_its_place_and_an_example) {
    EXPECT_EQ(refusal_of("i32(i32,string)", "[1, 2]"),
              "argument 2 has 2, expected string; example: \"text\"");
    EXPECT_EQ(refusal_of("i32(i32,string)", "[1]"),
              "the arguments are 1 value, expected a JSON list of 2; example: '[1, \"text\"]'");
    EXPECT_EQ(refusal_of("void(u8)", "[256]"), "argument 1 has 256, expected u8; example: 1");
    EXPECT_EQ(refusal_of("void(u8)", "[-1]"), "argument 1 has -1, expected u8; example: 1");
    EXPECT_EQ(refusal_of("void(i64)", "[9223372036854775808]"),
              "argument 1 has 9223372036854775808, expected i64; example: 1");
    EXPECT_EQ(refusal_of("void(f32)", "[1e300]"),
              "argument 1 has 1e+300, expected f32; example: 1.5");
    EXPECT_EQ(refusal_of("void(vector<tuple<i32,bool>>)", "[[[1, 2]]]"),
              "argument 1 has 2, expected bool; example: true");
    EXPECT_EQ(refusal_of("void(array<i32,3>)", "[[1, 2]]"),
              "argument 1 has [1,2], expected array<i32,3>; example: [1, 1, 1]");
    EXPECT_EQ(refusal_of("void(array<i32,9>)", "[1]"),
              "argument 1 has 1, expected array<i32,9>; example: [1, 1, 1, 1, 1, 1, 1, 1, …]");
    EXPECT_EQ(refusal_of("void(array<i32,0>)", "[1]"),
              "argument 1 has 1, expected array<i32,0>; example: []");
    EXPECT_EQ(refusal_of("void(i32,i32)", "[1]"),
              "the arguments are 1 value, expected a JSON list of 2; example: '[1, 1]'");
    EXPECT_EQ(refusal_of("void(f64)", "[1e400]"),
              "the arguments are [1e400], which has a number past the range of f64, expected at "
              "most 1.7976931348623157e308; example: '[1e300]'");
    EXPECT_EQ(refusal_of("void(app::matrix)", "[1]"),
              "\"app::matrix\" in void(app::matrix) has no JSON form: only numbers, enum, bool, "
              "string, byte, duration, vector, array, set, map, tuple, optional and variant have; "
              "call it from a program that has the type");
    EXPECT_NE(refusal_of("i32(stream<i32>)", "[1]").find("\"stream\" in i32(stream<i32>)"),
              std::string::npos)
        << refusal_of("i32(stream<i32>)", "[1]");
    EXPECT_EQ(refusal_of("void(map<string,i32>)", R"([{"a": 1, "a": 2}])"),
              "the arguments have the key \"a\" twice in one object, expected once; example: "
              "'[{\"one\": 1, \"two\": 2}]'");
    EXPECT_EQ(
        refusal_of("void(map<string,map<string,i32>>)", R"([{"a": {"a": 1}, "b": {"a": 2}}])"),
        "nothing was refused");
    EXPECT_EQ(refusal_of("void(i32)", "{"),
              "the arguments are {, expected a JSON list with a value for each; example: "
              "'[1, \"two\"]'");
    EXPECT_EQ(refusal_of("void(i32)", std::string(100'000, '[')),
              "the arguments have more than 64 lists and objects in each other, expected fewer; "
              "example: '[[1, 2], {\"three\": 3}]'");
}

TEST(call_values, signatures_of_a_hostile_peer_are_refused) {
    for (const std::string& text :
         {std::string(), std::string("i32"), std::string("i32("), std::string("i32(i32"),
          std::string("i32(i32))"), std::string("i32(,)"), std::string("vector<i32>"),
          std::string("void(vector<>)"), std::string("void(map<i32>)"),
          std::string("void(array<i32,99999999999>)"), std::string("void(array<i32,-1>)"),
          std::string("void(void)"), std::string("void(i32\x1b[2J)"),
          "void(" + std::string(16'000, '<') + ")"}) {
        EXPECT_THROW(parse_signature(text), error) << text;
    }
    std::string deep;
    for (int i = 0; i < 2000; ++i)
        deep += "vector<";
    EXPECT_THROW(parse_signature("void(" + deep), error);
}

TEST(call_values, answers_of_a_hostile_peer_are_refused) {
    const auto refuses = [](const std::string& result, std::vector<unsigned char> bytes) {
        raw_values values;
        for (const unsigned char each : bytes)
            values.bytes.push_back(std::byte{each});
        try {
            decode(parse_signature(result + "()").result, values);
        } catch (const error& why) {
            return why.code() == errc::mismatch;
        }
        return false;
    };
    EXPECT_TRUE(refuses("i32", {1, 2, 3}));
    EXPECT_TRUE(refuses("i32", {1, 2, 3, 4, 5}));
    EXPECT_TRUE(refuses("void", {1}));
    EXPECT_TRUE(refuses("string", {255, 255, 255, 255}));
    EXPECT_TRUE(refuses("vector<i32>", {255, 255, 255, 127, 0}));
    EXPECT_TRUE(refuses("vector<none>", {255, 255, 255, 255}));
    EXPECT_TRUE(refuses("variant<i32>", {1}));
    EXPECT_TRUE(refuses("vector<array<array<array<none,1000000>,1000000>,1000000>>", {1, 0, 0, 0}));
    // No UTF-8: shown, not thrown.
    EXPECT_EQ(to_text(decode({"string"}, raw_values::of(std::string("\xff")))), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace amalgam::tool
