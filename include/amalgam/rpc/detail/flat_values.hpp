#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/detail/wire_types.hpp>

/// Values that need no archive. In the native encoding numbers follow each other, each in its own
/// width: so where arguments or a result are nothing but numbers, their place is known to the
/// compiler.
namespace amalgam::detail {

/// Not enums, which may have a codec of their own.
template <typename T>
concept flat_number = wire_number<T> && std::is_arithmetic_v<T>;

/// Whether a result is: void, which takes no bytes, or a number.
template <typename R>
inline constexpr bool is_flat_result = std::is_void_v<R> || flat_number<std::remove_cvref_t<R>>;

template <typename R>
inline constexpr std::size_t flat_result_bytes = sizeof(R);
template <>
inline constexpr std::size_t flat_result_bytes<void> = 0;

/// A result as a message holds it. In two registers, as it is most often on its way to a message.
struct flat_result {
    std::uint64_t word = 0;  ///< Its first `bytes` bytes.
    std::size_t bytes = 0;   ///< At most 8.
};

/// Says that values are not flat.
inline constexpr std::size_t not_flat = ~std::size_t{0};

/// Reads numbers of these types, in their order.
template <flat_number... T>
std::tuple<T...> load_flat(const std::byte* from) noexcept {
    [[maybe_unused]] const auto next = [&from]<typename U>() {
        const U value = load_le<U>(from);
        from += sizeof(U);
        return value;
    };
    // Braces guarantee evaluation order.
    const std::tuple<T...> values{next.template operator()<T>()...};
    // Keeps the compiler from reading them again: a peer may change its memory meanwhile, and what
    // a handler has checked would no longer be what it uses.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return values;
}

template <flat_number T>
flat_result to_flat(T value) noexcept {
    flat_result result{0, sizeof(T)};
    store_le(&result.word, value);
    return result;
}

/// Reads a result of type R. False: it is not flat, or of another size.
template <typename R, typename Stored>
bool load_flat_result([[maybe_unused]] std::optional<Stored>& into,
                      [[maybe_unused]] const_bytes from) noexcept {
    if constexpr (is_flat_result<R>) {
        if (from.size() != flat_result_bytes<R>) return false;
        if constexpr (std::is_void_v<R>) {
            into.emplace();
        } else {
            into.emplace(load_le<R>(from.data()));
        }
        return true;
    }
    return false;
}

}  // namespace amalgam::detail
