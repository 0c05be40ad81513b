#include "call/signature.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "call/shown.hpp"

namespace amalgam::tool {

namespace {

constexpr std::size_t max_depth = 32;
constexpr std::size_t max_elements = 1u << 20;

constexpr std::array<std::string_view, 10> numbers{"i8",  "u8",  "i16", "u16", "i32",
                                                   "u32", "i64", "u64", "f32", "f64"};

bool is_number(std::string_view name) {
    return std::find(numbers.begin(), numbers.end(), name) != numbers.end();
}

/// Known types, and how many types each takes: -1 for any number.
struct known_type {
    std::string_view name;
    int takes;
};
constexpr std::array<known_type, 11> others{{{"bool", 0},
                                             {"char", 0},
                                             {"byte", 0},
                                             {"string", 0},
                                             {"none", 0},
                                             {"vector", 1},
                                             {"set", 1},
                                             {"optional", 1},
                                             {"map", 2},
                                             {"tuple", -1},
                                             {"variant", -1}}};

class reader {
public:
    explicit reader(std::string_view text) : text_(text) {}

    call_signature all() {
        call_signature found;
        found.result = type(0, true);
        expect('(');
        if (!take(')')) {
            do
                found.arguments.push_back(type(0, false));
            while (take(','));
            expect(')');
        }
        if (at_ != text_.size()) refuse();
        return found;
    }

private:
    value_type type(std::size_t depth, bool is_result) {
        if (depth > max_depth) refuse();
        const std::size_t begin = at_;
        const std::string_view name = word();
        if (name.empty()) refuse();
        if (is_result && name == "void") return {"void"};
        if (is_number(name)) return {std::string(name)};
        if (name == "array" || name == "duration") return sized(name, depth);
        const auto known =
            std::find_if(others.begin(), others.end(),
                         [name](const known_type& each) { return each.name == name; });
        if (known == others.end()) return enumeration(name, begin);
        value_type found{std::string(name)};
        if (known->takes == 0 || !take('<')) {
            if (known->takes != 0) refuse();
            return found;
        }
        if (!take('>')) {
            do
                found.of.push_back(type(depth + 1, false));
            while (take(','));
            expect('>');
        }
        const bool fits =
            known->takes < 0 || found.of.size() == static_cast<std::size_t>(known->takes);
        if (!fits || found.of.size() > 255) refuse();
        return found;
    }

    /// "array<f64,3>", "duration<i64,1/1000>": the ticks.
    value_type sized(std::string_view name, std::size_t depth) {
        expect('<');
        value_type found{std::string(name), {type(depth + 1, false)}};
        expect(',');
        const std::string_view number = word();
        expect('>');
        if (name == "duration") return found.of.front();
        const auto [end, wrong] =
            std::from_chars(number.data(), number.data() + number.size(), found.elements);
        const bool whole = wrong == std::errc() && end == number.data() + number.size();
        if (!whole || found.elements > max_elements) refuse();
        return found;
    }

    /// "app::color:u8" is a number; any other name is a type of the program's.
    value_type enumeration(std::string_view name, std::size_t begin) {
        const std::size_t colon = name.rfind(':');
        if (colon != name.npos && is_number(name.substr(colon + 1)))
            return {std::string(name.substr(colon + 1))};
        throw error(
            errc::unsupported,
            fmt::format("\"{}\" in {} has no JSON form: only numbers, enum, bool, string, "
                        "byte, duration, vector, array, set, map, tuple, optional and variant "
                        "have; call it from a program that has the type",
                        shown(text_.substr(begin, at_ - begin)), shown(text_)));
    }

    std::string_view word() {
        const std::size_t begin = at_;
        while (at_ < text_.size() &&
               std::string_view("<>(),").find(text_[at_]) == std::string::npos)
            ++at_;
        return text_.substr(begin, at_ - begin);
    }
    bool take(char c) {
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!take(c)) refuse();
    }
    [[noreturn]] void refuse() const {
        throw error(errc::invalid, fmt::format("\"{}\" is not a signature, expected a result and "
                                               "arguments; example: \"i32(i32,string)\"",
                                               shown(text_)));
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

call_signature parse_signature(std::string_view text) {
    return reader(text).all();
}

std::string to_string(const value_type& type) {
    std::string all = type.name;
    if (type.of.empty()) return all;
    for (std::size_t i = 0; i < type.of.size(); ++i)
        all += (i == 0 ? "<" : ",") + to_string(type.of[i]);
    if (type.name == "array") all += "," + std::to_string(type.elements);
    return all + ">";
}

}  // namespace amalgam::tool
