#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace amalgam {

/// Declares that a `T` can be copied as bytes: no pointers, no padding, and the same layout at both
/// ends. Such values are copied whole, alone and in contiguous containers, in either encoding. A
/// type opts in with a member `using amalgam_trivially_serializable = void;`, or by specializing
/// this to true_type.
template <typename T>
    struct trivially_serializable : std::bool_constant < requires {
    typename T::amalgam_trivially_serializable;
} > {};

}  // namespace amalgam

/// Types the archives write without a codec.
namespace amalgam::detail {

// long double differs between ABIs and contains padding; bool has invalid byte values.
template <typename T>
concept wire_number = sizeof(T) <= 8 && ((std::is_arithmetic_v<T> && !std::is_same_v<T, bool> &&
                                          !std::is_same_v<T, long double>) ||
                                         std::is_enum_v<T>);

/// One-byte numbers: contiguous ones are opaque bytes in XDR.
template <typename T>
concept octet = wire_number<T> && sizeof(T) == 1;

/// std::complex, without including it: two floating-point numbers.
template <typename T>
concept complex_like = std::is_trivially_copyable_v<T> && requires(T& x, const T& y) {
    typename T::value_type;
    requires std::is_floating_point_v<typename T::value_type>;
    requires wire_number<typename T::value_type>;
    requires sizeof(T) == 2 * sizeof(typename T::value_type);
    requires std::constructible_from<T, typename T::value_type, typename T::value_type>;
    { y.real() } -> std::same_as<typename T::value_type>;
    { y.imag() } -> std::same_as<typename T::value_type>;
    x.real(y.imag());
};

template <typename T>
inline constexpr bool is_bulk = (wire_number<T> &&
                                 (std::endian::native == std::endian::little || sizeof(T) == 1)) ||
                                (complex_like<T> && std::endian::native == std::endian::little) ||
                                trivially_serializable<T>::value;
template <typename T, std::size_t N>
inline constexpr bool is_bulk<std::array<T, N>> = N != 0 && is_bulk<T>;

/// Contiguous ranges of these are one copy in the native encoding, and can be borrowed.
template <typename T>
concept bulk = is_bulk<std::remove_cv_t<T>>;

template <typename T>
inline constexpr bool is_array = false;
template <typename T, std::size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;
template <typename T>
concept numbers_array = bulk<T> && is_array<T>;

/// Alignment of contiguous elements in the native encoding, so that views of them are aligned.
template <typename T>
inline constexpr std::size_t wire_alignment = alignof(T) < 8 ? alignof(T) : 8;

}  // namespace amalgam::detail
