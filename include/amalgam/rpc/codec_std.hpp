#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include <amalgam/rpc/codec.hpp>

/// How the standard library's types travel. Needs no includes of the containers it serves but
/// those above: maps, sets, lists and deques are recognized by what they can do.
namespace amalgam {

namespace detail {

/// vector and string: contiguous and resizable.
template <typename T>
concept contiguous_container = std::ranges::contiguous_range<T> &&
    requires(T& c, std::size_t n, typename T::value_type v) {
    c.resize(n);
    c.push_back(std::move(v));
    typename T::allocator_type;
};

/// list, deque and vector<bool>.
template <typename T>
concept sequence_container = !contiguous_container<T> && std::ranges::sized_range<T> &&
                             requires(T & c, typename T::value_type v) {
    c.push_back(std::move(v));
    typename T::allocator_type;
};

/// set, map and their relatives.
template <typename T>
concept associative_container = std::ranges::sized_range<T> && requires(T& c) {
    typename T::key_type;
    typename T::allocator_type;
    c.clear();
};

template <typename T>
struct value_of {
    using type = T;
};
template <typename K, typename V>
struct value_of<std::pair<const K, V>> {
    using type = std::pair<K, V>;  // A map's element, as one can read into it.
};

template <typename Archive, typename Range>
void save_elements(Archive& a, const Range& range) {
    a.count(std::ranges::size(range));
    for (const auto& element : range)
        a(element);
}

template <typename Archive, typename T>
void save_block(Archive& a, const T* data, std::size_t size) {
    a.count(size);
    a.align(wire_alignment<T>);
    a.raw(data, size * sizeof(T));
}

/// The bytes of `size` elements that save_block() wrote; empty when there are none.
template <typename T, typename Archive>
const_bytes load_block(Archive& a) {
    std::size_t size = a.count(sizeof(T));
    a.align(wire_alignment<T>);
    return a.raw(size * sizeof(T));
}

}  // namespace detail

template <detail::contiguous_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename T::value_type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        if constexpr (detail::bulk<value_type>) {
            detail::save_block(a, x.data(), x.size());
        } else {
            detail::save_elements(a, x);
        }
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        if constexpr (detail::bulk<value_type>) {
            const_bytes from = detail::load_block<value_type>(a);
            x.resize(from.size() / sizeof(value_type));
            if (!from.empty()) std::memcpy(static_cast<void*>(x.data()), from.data(), from.size());
        } else {
            x.clear();
            for (std::size_t n = a.count(codec<value_type>::min_bytes); n != 0 && a.ok(); --n) {
                value_type element{};
                a(element);
                if (a.ok()) x.push_back(std::move(element));
            }
        }
    }
};

template <detail::sequence_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename T::value_type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        a.count(x.size());
        for (const value_type& element : x)
            a(element);
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        x.clear();
        for (std::size_t n = a.count(codec<value_type>::min_bytes); n != 0 && a.ok(); --n) {
            value_type element{};
            a(element);
            if (a.ok()) x.push_back(std::move(element));
        }
    }
};

template <detail::associative_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename detail::value_of<typename T::value_type>::type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        detail::save_elements(a, x);
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        x.clear();
        for (std::size_t n = a.count(codec<value_type>::min_bytes); n != 0 && a.ok(); --n) {
            value_type element{};
            a(element);
            if (a.ok()) x.insert(x.end(), std::move(element));
        }
    }
};

/// Borrowed text: a handler's argument of this type points into the message.
template <>
struct codec<std::string_view> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, std::string_view x) {
        detail::save_block(a, x.data(), x.size());
    }
    template <typename Archive>
    static void load(Archive& a, std::string_view& x) {
        const_bytes from = detail::load_block<char>(a);
        x = {reinterpret_cast<const char*>(from.data()), from.size()};
    }
};

/// Borrowed elements: as std::string_view, on the wire the same as a vector.
template <typename T>
struct codec<std::span<const T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;
    static_assert(detail::bulk<T> && alignof(T) <= 8,
                  "only numbers, enums and trivially serializable types of alignment up to 8 can "
                  "be borrowed from a message: take a std::vector instead");

    template <typename Archive>
    static void save(Archive& a, std::span<const T> x) {
        detail::save_block(a, x.data(), x.size());
    }
    template <typename Archive>
    static void load(Archive& a, std::span<const T>& x) {
        const_bytes from = detail::load_block<T>(a);
        x = {reinterpret_cast<const T*>(from.data()), from.size() / sizeof(T)};
    }
};

template <typename T, std::size_t N>
requires(!detail::bulk<T>) struct codec<std::array<T, N>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = N * codec<T>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const std::array<T, N>& x) {
        for (const T& element : x)
            a(element);
    }
    template <typename Archive>
    static void load(Archive& a, std::array<T, N>& x) {
        for (T& element : x)
            a(element);
    }
};

/// A member of array type.
template <typename T, std::size_t N>
struct codec<T[N]> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = N * codec<T>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const T (&x)[N]) {
        for (const T& element : x)
            a(element);
    }
    template <typename Archive>
    static void load(Archive& a, T (&x)[N]) {
        for (T& element : x)
            a(element);
    }
};

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

/// optional and unique_ptr: one byte, 0 or 1, then the value if there is one.
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
        if (present && a.ok()) a(x.emplace());
    }
};

template <typename T>
requires(!std::is_array_v<T>) struct codec<std::unique_ptr<T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;

    template <typename Archive>
    static void save(Archive& a, const std::unique_ptr<T>& x) {
        a(x != nullptr);
        if (x) a(*x);
    }
    template <typename Archive>
    static void load(Archive& a, std::unique_ptr<T>& x) {
        bool present = false;
        a(present);
        x.reset();
        if (!present || !a.ok()) return;
        x = std::make_unique<T>();
        a(*x);
    }
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

/// One byte says which alternative.
template <typename... T>
struct codec<std::variant<T...>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 1;
    static_assert(sizeof...(T) <= 255);

    template <typename Archive>
    static void save(Archive& a, const std::variant<T...>& x) {
        a.scalar(static_cast<std::uint8_t>(x.index()));  // 255 when valueless: refused there.
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
        bool found = ((which == I && (a.ok() ? a(x.template emplace<I>()), true : true)) || ...);
        if (!found) a.fail("an index is past a variant's last alternative");
    }
};

/// The count of ticks; the period is part of the type's name, so of the signature.
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

}  // namespace amalgam
