#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace amalgam {

using const_bytes = std::span<const std::byte>;  ///< Borrowed bytes, to be read.
using mutable_bytes = std::span<std::byte>;      ///< Borrowed bytes, to be written.

namespace detail {
template <typename T>
concept fixed_width = std::is_trivially_copyable_v<T> &&
    (std::is_arithmetic_v<T> || std::is_enum_v<T>);

template <typename Range>
concept contiguous_trivial = requires(Range& r) {
    {std::span(r)};
    requires std::is_trivially_copyable_v<typename decltype(std::span(r))::value_type>;
};

/// `value` with its bytes in reverse order.
template <fixed_width T>
T byte_swapped(T value) noexcept {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    for (std::size_t i = 0; i < sizeof(T) / 2; ++i)
        std::swap(raw[i], raw[sizeof(T) - 1 - i]);
    std::memcpy(&value, raw, sizeof(T));
    return value;
}
inline std::uint32_t byte_swapped(std::uint32_t value) noexcept {
    return __builtin_bswap32(value);
}
inline std::uint64_t byte_swapped(std::uint64_t value) noexcept {
    return __builtin_bswap64(value);
}
}  // namespace detail

/// Views the bytes of a contiguous range of trivially copyable values (vector, string, array,
/// span), or of one trivially copyable object.
///
/// Owner: borrowed from `x`, which must outlive the view.
template <typename T>
const_bytes as_bytes_of(const T& x) noexcept {
    if constexpr (detail::contiguous_trivial<const T>) {
        return std::as_bytes(std::span(x));
    } else {
        static_assert(std::is_trivially_copyable_v<T>, "T must be trivially copyable");
        return std::as_bytes(std::span<const T, 1>(&x, 1));
    }
}

/// As as_bytes_of(), but writable.
template <typename T>
mutable_bytes as_writable_bytes_of(T& x) noexcept {
    if constexpr (detail::contiguous_trivial<T>) {
        return std::as_writable_bytes(std::span(x));
    } else {
        static_assert(std::is_trivially_copyable_v<T>, "T must be trivially copyable");
        return std::as_writable_bytes(std::span<T, 1>(&x, 1));
    }
}

/// Reads a little-endian integer, float or enum at any alignment.
/// Precondition: sizeof(T) bytes are readable at `from`.
template <detail::fixed_width T>
T load_le(const void* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof(T));
    if constexpr (std::endian::native == std::endian::big) value = detail::byte_swapped(value);
    return value;
}

/// Writes `value` little-endian at any alignment.
/// Precondition: sizeof(T) bytes are writable at `to`.
template <detail::fixed_width T>
void store_le(void* to, T value) noexcept {
    if constexpr (std::endian::native == std::endian::big) value = detail::byte_swapped(value);
    std::memcpy(to, &value, sizeof(T));
}

/// Reads a big-endian integer, float or enum at any alignment.
/// Precondition: sizeof(T) bytes are readable at `from`.
template <detail::fixed_width T>
T load_be(const void* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof(T));
    if constexpr (std::endian::native == std::endian::little) value = detail::byte_swapped(value);
    return value;
}

/// Writes `value` big-endian at any alignment.
/// Precondition: sizeof(T) bytes are writable at `to`.
template <detail::fixed_width T>
void store_be(void* to, T value) noexcept {
    if constexpr (std::endian::native == std::endian::little) value = detail::byte_swapped(value);
    std::memcpy(to, &value, sizeof(T));
}

}  // namespace amalgam
