#pragma once

#include <span>
#include <string_view>

namespace amalgam::detail {

/// Types that are views into a message.
template <typename T>
inline constexpr bool is_borrowed = false;
template <>
inline constexpr bool is_borrowed<std::string_view> = true;
template <typename T>
inline constexpr bool is_borrowed<std::span<const T>> = true;
template <template <typename...> typename C, typename... T>
inline constexpr bool is_borrowed<C<T...>> = (is_borrowed<T> || ...);

}  // namespace amalgam::detail
