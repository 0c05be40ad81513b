#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// A value of a JSON document and its path. Errors throw error{invalid} with a sentence:
/// "engine.json: streams[1].cpu is "two", expected a number …; example: 0".
///
/// Owner:   borrows the document and its origin.
class json_reader {
public:
    using json = nlohmann::ordered_json;

    json_reader(const json& value, std::string path, std::string_view origin)
        : value_(value), path_(std::move(path)), origin_(origin) {}

    /// Parses a document. Rejects malformed JSON, duplicate keys, and more than 100
    /// lists and objects in each other.
    static json parse(std::string_view text, std::string_view origin, std::string_view example);

    const json& value() const noexcept { return value_; }
    const std::string& path() const noexcept { return path_; }
    [[noreturn]] void fail(std::string_view sentence) const;
    [[noreturn]] void unexpected(std::string_view expected, std::string_view example) const;

    /// Checks that the value is an object with no other keys.
    void expect_object(std::initializer_list<std::string_view> keys,
                       std::string_view example) const;
    bool has(std::string_view key) const { return value_.contains(key); }
    json_reader at(std::string_view key) const;
    json_reader at(std::size_t index) const;

    std::string text(std::string_view what, std::string_view example) const;
    std::int64_t number(std::int64_t least, std::int64_t most, std::int64_t example) const;
    /// "20us": a number and ns, us, ms or s, at most `most`.
    std::chrono::nanoseconds time(std::chrono::nanoseconds most, std::string_view or_else,
                                  std::string_view example) const;
    bool truth(bool example) const;

    /// One of several words.
    template <typename Value, std::size_t N>
    Value word(const std::pair<std::string_view, Value> (&words)[N]) const {
        if (value_.is_string()) {
            for (const auto& [name, value] : words) {
                if (value_.get_ref<const std::string&>() == name) return value;
            }
        }
        std::string known;
        for (const auto& each : words)
            known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", each.first);
        unexpected(fmt::format("one of {}", known), fmt::format("\"{}\"", words[0].first));
    }

private:
    const json& value_;
    std::string path_;
    std::string_view origin_;
};

/// The largest size accepted in a config.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 50;

/// As read by json_reader::time(), in the largest unit that represents it exactly.
std::string time_text(std::chrono::nanoseconds time);

}  // namespace amalgam::detail
