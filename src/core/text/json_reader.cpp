#include "core/text/json_reader.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>

#include <fmt/ranges.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/json_checker.hpp>

namespace amalgam::detail {

namespace {

using json = json_reader::json;

struct unit {
    std::string_view name;
    std::int64_t nanoseconds;
};
constexpr unit units[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};

std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
}

}  // namespace

json json_reader::parse(std::string_view text, std::string_view origin, std::string_view example) {
    json_checker<json> checker;
    json document;
    try {
        document = json::parse(text, std::ref(checker));
    } catch (const too_many_json_levels&) {
        throw error(errc::invalid,
                    fmt::format("{}: more than {} lists and objects in each other, expected fewer; "
                                "example: {}",
                                origin, most_json_levels, example));
    } catch (const json::parse_error& wrong) {
        const auto before = text.substr(0, wrong.byte == 0 ? 0 : wrong.byte - 1);
        throw error(errc::invalid,
                    fmt::format("{}: line {} is not JSON, expected an object; example: {}", origin,
                                1 + std::count(before.begin(), before.end(), '\n'), example));
    } catch (const json::out_of_range&) {
        throw error(errc::invalid,
                    fmt::format("{}: a number is too large, expected an object; example: {}",
                                origin, example));
    }
    if (checker.repeated_key()) {
        throw error(errc::invalid,
                    printable_name(
                        fmt::format("{}: the key \"{}\" appears twice in one object, expected once",
                                    origin, *checker.repeated_key())));
    }
    return document;
}

void json_reader::fail(std::string_view sentence) const {
    throw error(errc::invalid, printable_name(fmt::format("{}: {}", origin_, sentence)));
}

void json_reader::unexpected(std::string_view expected, std::string_view example) const {
    fail(fmt::format("{} is {}, expected {}; example: {}", path_.empty() ? "the config" : path_,
                     shown(value_), expected, example));
}

void json_reader::expect_object(std::initializer_list<std::string_view> keys,
                                std::string_view example) const {
    if (!value_.is_object()) unexpected("an object", example);
    for (const auto& [key, ignored] : value_.items()) {
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        fail(fmt::format("{}{}{} is not known, expected one of: {}", path_,
                         path_.empty() ? "" : ".", key, fmt::join(keys, ", ")));
    }
}

json_reader json_reader::at(std::string_view key) const {
    return {value_.at(std::string(key)),
            fmt::format("{}{}{}", path_, path_.empty() ? "" : ".", key), origin_};
}

json_reader json_reader::at(std::size_t index) const {
    return {value_.at(index), fmt::format("{}[{}]", path_, index), origin_};
}

std::string json_reader::text(std::string_view what, std::string_view example) const {
    if (!value_.is_string()) unexpected(what, example);
    return value_.get<std::string>();
}

std::int64_t json_reader::number(std::int64_t least, std::int64_t most,
                                 std::int64_t example) const {
    const bool fits = value_.is_number_unsigned()
                          ? value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                          : value_.is_number_integer() && value_.get<std::int64_t>() <= most;
    if (!fits || value_.get<std::int64_t>() < least) {
        unexpected(fmt::format("a number from {} to {}", least, most), fmt::format("{}", example));
    }
    return value_.get<std::int64_t>();
}

bool json_reader::truth(bool example) const {
    if (!value_.is_boolean()) unexpected("true or false", example ? "true" : "false");
    return value_.get<bool>();
}

std::chrono::nanoseconds json_reader::time(std::chrono::nanoseconds most, std::string_view or_else,
                                           std::string_view example) const {
    const auto wrong = [&] {
        unexpected(fmt::format("a time in ns, us, ms or s{}", or_else), example);
    };
    if (!value_.is_string()) wrong();
    const std::string& text = value_.get_ref<const std::string&>();
    std::int64_t count = 0;
    const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    const auto* const in = std::find_if(std::begin(units), std::end(units),
                                        [suffix](const unit& each) { return each.name == suffix; });
    if (why != std::errc{} || in == std::end(units) || count < 0 ||
        count > most.count() / in->nanoseconds) {
        wrong();
    }
    return std::chrono::nanoseconds(count * in->nanoseconds);
}

std::string time_text(std::chrono::nanoseconds time) {
    for (const unit& each : units) {
        if (time.count() % each.nanoseconds == 0) {
            return fmt::format("{}{}", time.count() / each.nanoseconds, each.name);
        }
    }
    return {};
}

}  // namespace amalgam::detail
