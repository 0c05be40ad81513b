#include "call/json_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include <amalgam/core/json_checker.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>

#include "call/shown.hpp"

namespace amalgam::tool {

namespace {

constexpr int max_depth = 64;

template <typename Number>
struct number_of {
    using type = Number;
};

/// Calls `function(number_of<T>)` for the number type of that name; false if it is none.
template <typename Function>
bool with_number(std::string_view name, Function function) {
    if (name == "i8") return function(number_of<std::int8_t>{}), true;
    if (name == "u8" || name == "byte") return function(number_of<std::uint8_t>{}), true;
    if (name == "i16") return function(number_of<std::int16_t>{}), true;
    if (name == "u16") return function(number_of<std::uint16_t>{}), true;
    if (name == "i32") return function(number_of<std::int32_t>{}), true;
    if (name == "u32") return function(number_of<std::uint32_t>{}), true;
    if (name == "i64") return function(number_of<std::int64_t>{}), true;
    if (name == "u64") return function(number_of<std::uint64_t>{}), true;
    if (name == "f32") return function(number_of<float>{}), true;
    if (name == "f64") return function(number_of<double>{}), true;
    return false;
}

/// Contiguous values of one width are aligned to it, at most 8, as archives do. 0: they are not.
std::size_t block_alignment(const value_type& element) {
    if (element.name == "char") return 1;
    if (element.name == "array" && element.elements != 0)
        return block_alignment(element.of.front());
    std::size_t bytes = 0;
    with_number(element.name, [&](auto kind) { bytes = sizeof(typename decltype(kind)::type); });
    return bytes;
}

bool is_map_of_text(const value_type& type) {
    return type.name == "map" && type.of.front().name == "string";
}

std::string example_of(const value_type& type, unsigned depth = 0) {
    const std::string& name = type.name;
    if (name == "string") return "\"text\"";
    if (name == "char") return "\"c\"";
    if (name == "bool") return "true";
    if (name == "f32" || name == "f64") return "1.5";
    if (name == "none" || name == "optional") return "null";
    if (type.of.empty() || depth > 2) return name == "vector" ? "[]" : "1";
    if (name == "array" && type.elements == 0) return "[]";
    const std::string first = example_of(type.of.front(), depth + 1);
    if (is_map_of_text(type)) return "{\"key\": " + example_of(type.of.back(), depth + 1) + "}";
    if (name == "map") return "[[" + first + ", " + example_of(type.of.back(), depth + 1) + "]]";
    if (name == "variant") return "[0, " + first + "]";
    std::string all = first;
    if (name == "array") {
        constexpr std::size_t most = 8;
        for (std::size_t i = 1; i < std::min(type.elements, most); ++i)
            all += ", " + first;
        if (type.elements > most) all += ", …";
    }
    if (name == "tuple") {
        for (std::size_t i = 1; i < type.of.size() && i < 4; ++i)
            all += ", " + example_of(type.of[i], depth + 1);
    }
    return "[" + all + "]";
}

class encoder {
public:
    raw_values all(const call_signature& signature, const json& arguments) {
        if (!arguments.is_array() || arguments.size() != signature.arguments.size()) {
            std::string example;
            for (const value_type& each : signature.arguments)
                example += (example.empty() ? "" : ", ") + example_of(each);
            throw error(
                errc::invalid,
                fmt::format("the arguments are {}, expected a JSON list of {}; example: "
                            "'[{}]'",
                            arguments.is_array() ? fmt::format("{} value{}", arguments.size(),
                                                               arguments.size() == 1 ? "" : "s")
                                                 : shown(to_text(arguments), 40),
                            signature.arguments.size(), shown(example)));
        }
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            place_ = fmt::format("argument {}", i + 1);
            value(signature.arguments[i], arguments[i]);
        }
        return {{room_.bytes().begin(), room_.bytes().end()}, encoding::native};
    }

private:
    void value(const value_type& type, const json& from) {
        const std::string& name = type.name;
        if (with_number(name,
                        [&](auto kind) { number<typename decltype(kind)::type>(type, from); }))
            return;
        if (name == "bool") {
            if (!from.is_boolean()) refuse(type, from);
            to_(from.get<bool>());
        } else if (name == "char") {
            if (!from.is_string() || from.get_ref<const std::string&>().size() != 1)
                refuse(type, from);
            to_(from.get_ref<const std::string&>().front());
        } else if (name == "string") {
            if (!from.is_string()) refuse(type, from);
            to_(from.get_ref<const std::string&>());
        } else if (name == "none") {
            if (!from.is_null()) refuse(type, from);
        } else if (name == "optional") {
            to_(!from.is_null());
            if (!from.is_null()) value(type.of.front(), from);
        } else if (name == "vector" || name == "set") {
            if (!from.is_array()) refuse(type, from);
            to_.count(from.size());
            if (const std::size_t align = name == "set" ? 0 : block_alignment(type.of.front()))
                to_.align(align);
            for (const json& each : from)
                value(type.of.front(), each);
        } else if (name == "array") {
            if (!from.is_array() || from.size() != type.elements) refuse(type, from);
            for (const json& each : from)
                value(type.of.front(), each);
        } else if (name == "tuple") {
            if (!from.is_array() || from.size() != type.of.size()) refuse(type, from);
            for (std::size_t i = 0; i < from.size(); ++i)
                value(type.of[i], from[i]);
        } else if (name == "map") {
            map(type, from);
        } else if (name == "variant") {
            const bool pair = from.is_array() && from.size() == 2 && from[0].is_number_unsigned();
            if (!pair || from[0].get<std::uint64_t>() >= type.of.size()) refuse(type, from);
            const auto which = from[0].get<std::uint8_t>();
            to_(which);
            value(type.of[which], from[1]);
        } else {
            refuse(type, from);
        }
    }

    void map(const value_type& type, const json& from) {
        if (is_map_of_text(type) && from.is_object()) {
            to_.count(from.size());
            for (const auto& [key, each] : from.items()) {
                to_(key);
                value(type.of.back(), each);
            }
            return;
        }
        if (!from.is_array()) refuse(type, from);
        to_.count(from.size());
        for (const json& each : from) {
            if (!each.is_array() || each.size() != 2) refuse(type, from);
            value(type.of.front(), each[0]);
            value(type.of.back(), each[1]);
        }
    }

    template <typename T>
    void number(const value_type& type, const json& from) {
        if constexpr (std::is_floating_point_v<T>) {
            const auto named = [&](const char* text) { return from == json(text); };
            constexpr T infinite = std::numeric_limits<T>::infinity();
            if (named("inf")) return to_.scalar(infinite);
            if (named("-inf")) return to_.scalar(-infinite);
            if (named("nan")) return to_.scalar(std::numeric_limits<T>::quiet_NaN());
            if (!from.is_number()) refuse(type, from);
            const double wide = from.get<double>();
            if (std::abs(wide) > static_cast<double>(std::numeric_limits<T>::max()))
                refuse(type, from);
            to_.scalar(static_cast<T>(wide));
        } else {
            if (!from.is_number_integer()) refuse(type, from);
            if (from.is_number_unsigned()) {
                const auto wide = from.get<std::uint64_t>();
                if (wide > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
                    refuse(type, from);
                to_.scalar(static_cast<T>(wide));
            } else {
                const auto wide = from.get<std::int64_t>();
                if (wide < static_cast<std::int64_t>(std::numeric_limits<T>::min()))
                    refuse(type, from);
                to_.scalar(static_cast<T>(wide));
            }
        }
    }

    [[noreturn]] void refuse(const value_type& type, const json& from) const {
        throw error(errc::invalid, fmt::format("{} has {}, expected {}; example: {}", place_,
                                               shown(to_text(from), 40), shown(to_string(type)),
                                               shown(example_of(type))));
    }

    body room_;
    archive_writer to_{room_};
    std::string place_;
};

class decoder {
public:
    explicit decoder(const raw_values& from) : from_(from.bytes, from.as) {}

    json all(const value_type& type) {
        json found = type.name == "void" ? json() : value(type);
        if (!from_.ok() || from_.remaining() != 0) {
            throw error(errc::mismatch,
                        fmt::format("the answer does not fit {}: {}", shown(to_string(type)),
                                    from_.ok() ? "trailing bytes" : from_.why()));
        }
        return found;
    }

private:
    json value(const value_type& type) {
        const std::string& name = type.name;
        json found;
        if (with_number(name, [&](auto kind) {
                found = number(from_.scalar<typename decltype(kind)::type>());
            }))
            return found;
        if (name == "bool") {
            bool yes = false;
            from_(yes);
            return yes;
        }
        if (name == "char") return std::string(1, from_.scalar<char>());
        if (name == "string") {
            std::string text;
            from_(text);
            return text;
        }
        if (name == "none") return nullptr;
        if (name == "optional") {
            bool there = false;
            from_(there);
            return there && from_.ok() ? value(type.of.front()) : json();
        }
        if (name == "variant") {
            const auto which = from_.scalar<std::uint8_t>();
            if (which >= type.of.size()) {
                from_.fail("a variant's index is out of range");
                return nullptr;
            }
            return json::array({which, value(type.of[which])});
        }
        return several(type);
    }

    json several(const value_type& type) {
        json all = json::array();
        if (type.name == "tuple") {
            for (const value_type& each : type.of)
                all.push_back(value(each));
            return all;
        }
        if (type.name == "array") {
            for (std::size_t i = 0; i < type.elements && from_.ok() && may_hold(); ++i)
                all.push_back(value(type.of.front()));
            return all;
        }
        if (is_map_of_text(type)) all = json::object();
        std::size_t left = from_.count(1);
        if (const std::size_t align = type.name == "vector" ? block_alignment(type.of.front()) : 0)
            from_.align(align);
        for (; left != 0 && from_.ok() && may_hold(); --left) {
            json first = value(type.of.front());
            if (type.name != "map") {
                all.push_back(std::move(first));
            } else if (all.is_object()) {
                all[first.get<std::string>()] = value(type.of.back());
            } else {
                json second = value(type.of.back());
                all.push_back(json::array({std::move(first), std::move(second)}));
            }
        }
        return all;
    }

    /// Types that take no bytes, nested, could multiply without end.
    bool may_hold() {
        constexpr std::size_t most = std::size_t{1} << 22;
        if (++values_ <= most) return true;
        from_.fail("too many values to print");
        return false;
    }

    template <typename T>
    static json number(T value) {
        if constexpr (std::is_floating_point_v<T>) {
            if (std::isnan(value)) return "nan";
            if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
            if constexpr (std::is_same_v<T, float>) {
                // As short as the float is exact: 0.1, not 0.10000000149011612.
                return json::parse(fmt::format("{}", value));
            }
        }
        return value;
    }

    archive_reader from_;
    std::size_t values_ = 0;
};

/// Whether a parser gave up because of a number that no double holds.
bool has_endless_number(std::string_view text) {
    try {
        return json::parse(text).is_discarded();
    } catch (const json::out_of_range&) {
        return true;
    } catch (const json::exception&) {
        return false;
    }
}

[[noreturn]] void refuse_as_no_list(std::string_view text) {
    throw error(errc::invalid, fmt::format("the arguments are {}, expected a JSON list with a "
                                           "value for each; example: '[1, \"two\"]'",
                                           shown(text, 60)));
}

}  // namespace

json parse_arguments(std::string_view text) {
    amalgam::json_checker<json> checker(max_depth);
    json found;
    try {
        found = json::parse(text, std::ref(checker), false);
    } catch (const amalgam::too_many_json_levels&) {
        throw error(errc::invalid,
                    fmt::format("the arguments have more than {} lists and objects in each other, "
                                "expected fewer; example: '[[1, 2], {{\"three\": 3}}]'",
                                max_depth));
    }
    if (found.is_discarded() && has_endless_number(text)) {
        throw error(errc::invalid,
                    fmt::format("the arguments are {}, which has a number past the range of f64, "
                                "expected at most 1.7976931348623157e308; example: '[1e300]'",
                                shown(text, 60)));
    }
    if (!found.is_array()) refuse_as_no_list(text);
    if (checker.repeated_key()) {
        throw error(errc::invalid,
                    fmt::format("the arguments have the key \"{}\" twice in one object, expected "
                                "once; example: '[{{\"one\": 1, \"two\": 2}}]'",
                                shown(*checker.repeated_key(), 40)));
    }
    return found;
}

raw_values encode(const call_signature& signature, const json& arguments) {
    return encoder().all(signature, arguments);
}

json decode(const value_type& type, const raw_values& values) {
    return decoder(values).all(type);
}

std::string to_text(const json& value) {
    return shown_json(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace amalgam::tool
