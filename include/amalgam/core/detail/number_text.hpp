#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace amalgam::detail {

/// What std::from_chars() reads of a floating-point number that is the whole text, for libraries
/// whose own is for integers only: libc++ before 20. False for any other text, one of more than
/// 1100 bytes, and a number that does not fit.
bool read_floating(std::string_view text, float& into) noexcept;
bool read_floating(std::string_view text, double& into) noexcept;
bool read_floating(std::string_view text, long double& into) noexcept;

/// A decimal number that is the whole text and fits T; else empty.
template <typename T>
std::optional<T> number_in(std::string_view text) noexcept {
    T read{};
#ifndef __cpp_lib_to_chars
    if constexpr (std::is_floating_point_v<T>) {
        if (!read_floating(text, read)) return std::nullopt;
        return read;
    } else
#endif
    {
        const char* const end = text.data() + text.size();
        const auto [stop, why] = std::from_chars(text.data(), end, read);
        if (why != std::errc() || stop != end) return std::nullopt;
        return read;
    }
}

}  // namespace amalgam::detail
