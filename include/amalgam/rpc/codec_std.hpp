#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/codec.hpp>

/// @file
/// Encoding of standard library types other than containers.
namespace amalgam {

template <typename A, typename B>
struct codec<std::pair<A, B>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = codec<A>::min_bytes + codec<B>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const std::pair<A, B>& x) {
        codec<std::remove_const_t<A>>::save(a, x.first);
        a(x.second);
    }
    template <typename Archive>
    static void load(Archive& a, std::pair<A, B>& x) {
        a(x.first, x.second);
    }
};

template <typename... T>
struct codec<std::tuple<T...>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = (0 + ... + codec<T>::min_bytes);

    template <typename Archive>
    static void save(Archive& a, const std::tuple<T...>& x) {
        std::apply([&a](const T&... each) { a(each...); }, x);
    }
    template <typename Archive>
    static void load(Archive& a, std::tuple<T...>& x) {
        std::apply([&a](T&... each) { a(each...); }, x);
    }
};

namespace detail {

/// Reads a `T` in place if it is default-constructible.
template <typename T, typename Archive>
void emplace_new(std::optional<T>& into, Archive& a) {
    if constexpr (std::is_default_constructible_v<T>) {
        a(into.emplace());
    } else {
        into.emplace(load_new<T>(a));
    }
}

}  // namespace detail

/// optional and pointers: a bool, then the value if present.
template <typename T>
struct codec<std::optional<T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;

    template <typename Archive>
    static void save(Archive& a, const std::optional<T>& x) {
        a(x.has_value());
        if (x) a(*x);
    }
    template <typename Archive>
    static void load(Archive& a, std::optional<T>& x) {
        bool present = false;
        a(present);
        x.reset();
        if (present && a.ok()) detail::emplace_new(x, a);
    }
};

namespace detail {

template <typename T>
struct pointee_codec {
    using for_library_type = void;
    using value_type = std::remove_const_t<T>;
    static constexpr std::size_t min_bytes = 1;

    template <typename Archive, typename Pointer>
    static void save(Archive& a, const Pointer& x) {
        static_assert(!std::is_polymorphic_v<T> || std::is_final_v<T>,
                      "a pointer to a polymorphic base would be sliced: send a std::variant of the "
                      "possible types");
        a(x != nullptr);
        if (x) a(static_cast<const value_type&>(*x));
    }
    template <typename Archive, typename Pointer>
    static void load(Archive& a, Pointer& x) {
        bool present = false;
        a(present);
        x.reset();
        if (!present || !a.ok()) return;
        if constexpr (std::is_default_constructible_v<T>) {
            auto fresh = std::make_unique<value_type>();
            a(*fresh);
            x = std::move(fresh);
        } else {
            x = std::make_unique<value_type>(load_new<value_type>(a));
        }
    }
};

}  // namespace detail

template <typename T>
requires(!std::is_array_v<T>) struct codec<std::unique_ptr<T>> : detail::pointee_codec<T> {
};

/// Like unique_ptr: two pointers that share an object arrive as two objects.
template <typename T>
requires(!std::is_array_v<T>) struct codec<std::shared_ptr<T>> : detail::pointee_codec<T> {
};

template <>
struct codec<std::monostate> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 0;
    template <typename Archive>
    static void save(Archive&, std::monostate) {}
    template <typename Archive>
    static void load(Archive&, std::monostate&) {}
};

/// A byte (an int in XDR) selects the alternative.
template <typename... T>
struct codec<std::variant<T...>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;
    static_assert(sizeof...(T) <= 255);

    template <typename Archive>
    static void save(Archive& a, const std::variant<T...>& x) {
        a.scalar(static_cast<std::uint8_t>(x.index()));  // 255 if valueless; the reader rejects it.
        if (!x.valueless_by_exception()) std::visit([&a](const auto& value) { a(value); }, x);
    }
    template <typename Archive>
    static void load(Archive& a, std::variant<T...>& x) {
        load_alternative(a, x, std::index_sequence_for<T...>{});
    }

private:
    template <typename Archive, std::size_t... I>
    static void load_alternative(Archive& a, std::variant<T...>& x, std::index_sequence<I...>) {
        std::size_t which = a.template scalar<std::uint8_t>();
        if (!a.ok()) return;
        bool found = ((which == I && load_as<I>(a, x)) || ...);
        if (!found) a.fail("a variant's index is out of range");
    }
    template <std::size_t I, typename Archive>
    static bool load_as(Archive& a, std::variant<T...>& x) {
        using alternative = std::variant_alternative_t<I, std::variant<T...>>;
        if constexpr (std::is_default_constructible_v<alternative>) {
            a(x.template emplace<I>());
        } else {
            x.template emplace<I>(detail::load_new<alternative>(a));
        }
        return true;
    }
};

/// The tick count; the period is part of the type name, hence of the signature.
template <typename Rep, typename Period>
struct codec<std::chrono::duration<Rep, Period>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = codec<Rep>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const std::chrono::duration<Rep, Period>& x) {
        a(x.count());
    }
    template <typename Archive>
    static void load(Archive& a, std::chrono::duration<Rep, Period>& x) {
        Rep ticks{};
        a(ticks);
        x = std::chrono::duration<Rep, Period>(ticks);
    }
};

template <typename Clock, typename Duration>
struct codec<std::chrono::time_point<Clock, Duration>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = codec<Duration>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const std::chrono::time_point<Clock, Duration>& x) {
        a(x.time_since_epoch());
    }
    template <typename Archive>
    static void load(Archive& a, std::chrono::time_point<Clock, Duration>& x) {
        Duration since{};
        a(since);
        x = std::chrono::time_point<Clock, Duration>(since);
    }
};

namespace detail {

/// std::bitset, without including it.
template <typename T>
concept bits_like = !has_member_save<T> && requires(T & x, const T& y) {
    { y.test(0) } -> std::same_as<bool>;
    y.to_ullong();
    x.flip(0);
    x[0] = y.all();
};

}  // namespace detail

/// bitset: eight bits per byte, lowest bit first.
template <template <std::size_t> typename Bits, std::size_t N>
requires(detail::bits_like<Bits<N>>) struct codec<Bits<N>> {
    using for_library_type = void;
    using bytes_type = std::array<std::uint8_t, (N + 7) / 8>;
    static constexpr std::size_t min_bytes = std::tuple_size_v<bytes_type>;

    template <typename Archive>
    static void save(Archive& a, const Bits<N>& x) {
        bytes_type bytes{};
        for (std::size_t i = 0; i < N; ++i)
            if (x[i]) bytes[i / 8] |= static_cast<std::uint8_t>(1u << i % 8);
        a.elements(bytes.data(), bytes.size());
    }
    template <typename Archive>
    static void load(Archive& a, Bits<N>& x) {
        bytes_type bytes{};
        a.elements(bytes.data(), bytes.size());
        for (std::size_t i = 0; i < N; ++i)
            x[i] = (bytes[i / 8] >> i % 8 & 1) != 0;
        if constexpr (N % 8 != 0) {
            if (bytes.back() >> N % 8 != 0) a.fail("a bitset has bits set beyond its size");
        }
    }
};

namespace detail {

/// std::filesystem::path, without including it.
template <typename T>
concept path_like = requires(const T& x) {
    requires std::is_same_v<typename T::string_type, std::string>;
    { x.native() } -> std::same_as<const std::string&>;
    { x.lexically_normal() } -> std::same_as<T>;
};

}  // namespace detail

/// Encoded as a string, in the writer's native format.
template <detail::path_like T>
struct codec<T> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        a(x.native());
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        std::string_view text;
        a(text);
        x = T(text);
    }
};

}  // namespace amalgam

// cereal's wrappers between the archive and the member are transparent.
namespace cereal {
template <typename T>
class NameValuePair;
template <typename Base>
struct base_class;
template <typename Base>
struct virtual_base_class;
}  // namespace cereal

namespace amalgam {

/// CEREAL_NVP(member) encodes as the member.
template <typename T>
struct codec<cereal::NameValuePair<T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = codec<std::remove_cvref_t<T>>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const cereal::NameValuePair<T>& x) {
        a(x.value);
    }
    template <typename Archive>
    static void load(Archive& a, cereal::NameValuePair<T>& x) {
        a(x.value);
    }
};

namespace detail {

struct base_codec {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;

    template <typename Archive, typename Wrapped>
    static void save(Archive& a, const Wrapped& x) {
        a(*x.base_ptr);
    }
    template <typename Archive, typename Wrapped>
    static void load(Archive& a, Wrapped& x) {
        a(*x.base_ptr);
    }
};

}  // namespace detail

/// cereal::base_class<base>(this) encodes as the base.
template <typename T>
struct codec<cereal::base_class<T>> : detail::base_codec {};
template <typename T>
struct codec<cereal::virtual_base_class<T>> : detail::base_codec {};

}  // namespace amalgam
