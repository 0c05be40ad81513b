#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/rpc/codec.hpp>

/// @file
/// Encoding of containers and contiguous views. Includes none of the containers: they are
/// recognized by their interface. A container class that defines its own serialization is treated
/// as any user type.
namespace amalgam {

namespace detail {

// std::ranges::range and its relatives for containers; <ranges> is too much for users' builds.
template <typename T>
concept iterable = requires(T& c) {
    { c.begin() } -> std::input_iterator;
    { c.end() } -> std::sentinel_for<decltype(c.begin())>;
};
template <typename T>
concept sized_iterable = iterable<T> && requires(const T& c) {
    { c.size() } -> std::convertible_to<std::size_t>;
};

/// vector and string: contiguous and resizable.
template <typename T>
concept contiguous_container = !has_member_save<T> && sized_iterable<T> &&
                               requires(T & c, std::size_t n, typename T::value_type v) {
    { c.begin() } -> std::contiguous_iterator;
    { c.data() } -> std::same_as<typename T::value_type*>;
    c.resize(n);
    c.push_back(std::move(v));
    typename T::allocator_type;
};

/// list, deque and vector<bool>.
template <typename T>
concept sequence_container = !has_member_save<T> && !contiguous_container<T> && sized_iterable<T> &&
                             requires(T & c, typename T::value_type v) {
    c.push_back(std::move(v));
    typename T::allocator_type;
};

/// set, map and their relatives.
template <typename T>
concept associative_container = !has_member_save<T> && sized_iterable<T> && requires(T & c) {
    typename T::key_type;
    typename T::allocator_type;
    c.clear();
};

/// forward_list: inserts after an element, and has no size().
template <typename T>
concept linked_container =
    !has_member_save<T> && iterable<T> && requires(T & c, typename T::value_type v) {
    c.insert_after(c.before_begin(), std::move(v));
    typename T::allocator_type;
};

/// valarray.
template <typename T>
concept number_container = !has_member_save<T> && requires(T & c) {
    { begin(c) } -> std::contiguous_iterator;
    c.resize(1);
    c.cshift(1);
    requires bulk<typename T::value_type>;
};

/// queue, stack and priority_queue.
template <typename T>
concept container_adaptor =
    !has_member_save<T> && !iterable<T> && requires(T & c, typename T::value_type v) {
    typename T::container_type;
    c.push(std::move(v));
    c.pop();
};

template <typename T>
struct value_of {
    using type = T;
};
template <typename K, typename V>
struct value_of<std::pair<const K, V>> {
    using type = std::pair<K, V>;  // A map's element with a mutable key, to read into.
};

template <typename Archive, typename Range>
void save_elements(Archive& a, const Range& range, std::size_t size) {
    a.count(size);
    for (const typename Range::value_type& element : range)
        a(element);
}

/// Calls `add(Element&&)` for each element read.
template <typename Element, typename Archive, typename Add>
void load_elements(Archive& a, Add add) {
    for (std::size_t n = a.count(codec<Element>::min_bytes); n != 0 && a.ok(); --n) {
        Element element = load_new<Element>(a);
        if (a.ok()) add(std::move(element));
    }
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
            a.block(x.data(), x.size());
        } else {
            detail::save_elements(a, x, x.size());
        }
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        if constexpr (detail::bulk<value_type>) {
            const std::size_t size = a.template block<value_type>();
            if (a.is_xdr()) {
                x.resize(size);
                a.elements(x.data(), size);
                if (!a.ok()) x.clear();
            } else {
                const std::span<const value_type> from = a.template view<value_type>(size);
                x.assign(from.data(),
                         from.data() + from.size());  // By iterators a string copies twice.
            }
        } else {
            x.clear();
            detail::load_elements<value_type>(
                a, [&x](value_type&& element) { x.push_back(std::move(element)); });
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
        detail::save_elements(a, x, x.size());
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        x.clear();
        detail::load_elements<value_type>(
            a, [&x](value_type&& element) { x.push_back(std::move(element)); });
    }
};

template <detail::associative_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename detail::value_of<typename T::value_type>::type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        detail::save_elements(a, x, x.size());
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        x.clear();
        detail::load_elements<value_type>(
            a, [&x](value_type&& element) { x.insert(x.end(), std::move(element)); });
    }
};

template <detail::linked_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename T::value_type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        detail::save_elements(a, x, static_cast<std::size_t>(std::distance(x.begin(), x.end())));
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        x.clear();
        auto last = x.before_begin();
        detail::load_elements<value_type>(
            a, [&](value_type&& element) { last = x.insert_after(last, std::move(element)); });
    }
};

template <detail::number_container T>
struct codec<T> {
    using for_library_type = void;
    using value_type = typename T::value_type;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        a.block(x.size() == 0 ? nullptr : &x[0], x.size());
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        const std::size_t size = a.template block<value_type>();
        x.resize(size);
        if (size != 0) a.elements(&x[0], size);
        if (!a.ok()) x.resize(0);
    }
};

/// As the underlying container. A priority_queue is re-heaped on load, since the input may be in
/// any order.
template <detail::container_adaptor T>
struct codec<T> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        a(x.*inside::container());
    }
    template <typename Archive>
    static void load(Archive& a, T& x) {
        auto& container = x.*inside::container();
        a(container);
        if constexpr (requires { typename T::value_compare; }) {
            auto unordered = std::move(container);
            container.clear();
            for (auto& element : unordered)
                x.push(std::move(element));
        }
    }

private:
    struct inside : T {  // The member is protected, with a name fixed by the standard.
        static constexpr auto container() { return &inside::c; }
    };
};

/// Borrowed text: a handler parameter of this type points into the message.
template <>
struct codec<std::string_view> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, std::string_view x) {
        a.block(x.data(), x.size());
    }
    template <typename Archive>
    static void load(Archive& a, std::string_view& x) {
        const auto from = a.template view<char>(a.template block<char>());
        x = {from.data(), from.size()};
    }
};

/// Borrowed elements: like std::string_view; encoded as a vector. Where the XDR bytes differ from
/// memory, they are decoded into memory that lives as long as the message.
template <typename T>
struct codec<std::span<const T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;
    static_assert(detail::bulk<T> && alignof(T) <= 64,
                  "only numbers, enums and trivially serializable types with an alignment of at "
                  "most 64 can be borrowed from a message: use a std::vector instead");

    template <typename Archive>
    static void save(Archive& a, std::span<const T> x) {
        a.block(x.data(), x.size());
    }
    template <typename Archive>
    static void load(Archive& a, std::span<const T>& x) {
        x = a.template view<T>(a.template block<T>());
    }
};

template <typename T, std::size_t N>
requires(!detail::is_bulk<std::array<T, N>>) struct codec<std::array<T, N>> {
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

/// Member arrays.
template <typename T, std::size_t N>
struct codec<T[N]> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = N * codec<T>::min_bytes;

    template <typename Archive>
    static void save(Archive& a, const T (&x)[N]) {
        if constexpr (detail::bulk<T>) {
            a.elements(x, N);
        } else {
            for (const T& element : x)
                a(element);
        }
    }
    template <typename Archive>
    static void load(Archive& a, T (&x)[N]) {
        if constexpr (detail::bulk<T>) {
            a.elements(x, N);
        } else {
            for (T& element : x)
                a(element);
        }
    }
};

}  // namespace amalgam
