#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/detail/wire_types.hpp>

/// XDR (RFC 4506) for types of fixed size. Every value takes a multiple of four bytes; numbers are
/// big-endian.
namespace amalgam::detail {

constexpr std::size_t xdr_padded(std::size_t bytes) noexcept {
    return (bytes + 3) & ~std::size_t{3};
}

template <typename T>
struct xdr_size_of {
    static constexpr std::size_t bytes = xdr_padded(sizeof(T));
};
template <typename T, std::size_t N>
struct xdr_size_of<std::array<T, N>> {
    static constexpr std::size_t bytes = octet<T> ? xdr_padded(N) : N * xdr_size_of<T>::bytes;
};
template <complex_like T>
struct xdr_size_of<T> {
    static constexpr std::size_t bytes = 2 * sizeof(typename T::value_type);
};
/// XDR size of one value. Never less than sizeof(T) without its padding, so one bound covers both.
template <bulk T>
inline constexpr std::size_t xdr_bytes = xdr_size_of<T>::bytes;

/// Whether contiguous elements have the same bytes in both encodings, apart from trailing zeros.
template <bulk T>
inline constexpr bool xdr_is_plain = octet<T> ||
                                     (!wire_number<T> && trivially_serializable<T>::value &&
                                      sizeof(T) % 4 == 0);

/// The wire type of a number: a 32- or 64-bit integer, holding the bits of a float.
template <wire_number T>
using wire_word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <wire_number T>
constexpr wire_word<T> to_word(T value) noexcept {
    if constexpr (std::is_enum_v<T>) {
        return to_word(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
        return std::bit_cast<wire_word<T>>(value);
    } else if constexpr (std::is_same_v<T, char>) {
        // The signedness of char differs between platforms.
        return static_cast<unsigned char>(value);
    } else {
        return static_cast<wire_word<T>>(value);  // Sign-extended.
    }
}

/// Valid only if to_word() gives `word` back.
template <wire_number T>
constexpr T from_word(wire_word<T> word) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
        return std::bit_cast<T>(word);
    } else {
        return static_cast<T>(word);
    }
}

/// Writes xdr_bytes<T> bytes.
template <bulk T>
void to_xdr(std::byte* to, const T& value) noexcept {
    if constexpr (wire_number<T>) {
        store_be(to, to_word(value));
    } else if constexpr (complex_like<T>) {
        store_be(to, value.real());
        store_be(to + sizeof(typename T::value_type), value.imag());
    } else if constexpr (numbers_array<T>) {
        using element = typename T::value_type;
        if constexpr (octet<element>) {
            std::memset(to, 0, xdr_bytes<T>);
            std::memcpy(to, value.data(), value.size());
        } else {
            for (const element& each : value) {
                to_xdr(to, each);
                to += xdr_bytes<element>;
            }
        }
    } else {
        if constexpr (xdr_bytes<T> != sizeof(T)) std::memset(to, 0, xdr_bytes<T>);
        std::memcpy(to, &value, sizeof(T));
    }
}

/// Reads xdr_bytes<T> bytes. False: a number is out of its type's range.
template <bulk T>
bool from_xdr(const std::byte* from, T& value) noexcept {
    if constexpr (wire_number<T>) {
        const auto word = load_be<wire_word<T>>(from);
        value = from_word<T>(word);
        return to_word(value) == word;
    } else if constexpr (complex_like<T>) {
        using part = typename T::value_type;
        value = T(load_be<part>(from), load_be<part>(from + sizeof(part)));
        return true;
    } else if constexpr (numbers_array<T>) {
        using element = typename T::value_type;
        if constexpr (octet<element>) {
            std::memcpy(value.data(), from, value.size());
            return true;
        } else {
            bool good = true;
            for (element& each : value) {
                good &= from_xdr(from, each);
                from += xdr_bytes<element>;
            }
            return good;
        }
    } else {
        std::memcpy(static_cast<void*>(&value), from, sizeof(T));
        return true;
    }
}

}  // namespace amalgam::detail
