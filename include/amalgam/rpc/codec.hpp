#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <amalgam/rpc/archive.hpp>

namespace amalgam {

/// Says that the bytes of a `T` are its value: no pointers, no padding, same layout at both
/// ends. Such types travel by one copy, alone and in contiguous containers. A type opts in by
/// `using amalgam_trivially_serializable = void;` inside, or by specializing this to true_type.
template <typename T>
    struct trivially_serializable : std::bool_constant < requires {
    typename T::amalgam_trivially_serializable;
} > {};

namespace detail {

// long double differs between ABIs and holds padding; bool has invalid bytes.
template <typename T>
concept wire_number = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool> &&
                       !std::is_same_v<T, long double>) ||
                      (std::is_enum_v<T> && !std::is_same_v<T, bool>);

template <typename T>
inline constexpr bool is_bulk = (wire_number<T> && std::endian::native == std::endian::little) ||
                                trivially_serializable<T>::value;
template <typename T, std::size_t N>
inline constexpr bool is_bulk<std::array<T, N>> = is_bulk<T>;

/// Contiguous ranges of these are one copy, and may be borrowed.
template <typename T>
concept bulk = is_bulk<std::remove_cv_t<T>>;

/// The boundary contiguous elements start at, so that a view of them is aligned.
template <typename T>
inline constexpr std::size_t wire_alignment = alignof(T) < 8 ? alignof(T) : 8;

template <typename T, typename Archive>
concept member_serialize = requires(T& x, Archive& a) {
    x.serialize(a);
};
template <typename T, typename Archive>
concept member_save = requires(const T& x, Archive& a) {
    x.save(a);
};
template <typename T, typename Archive>
concept member_load = requires(T& x, Archive& a) {
    x.load(a);
};

// Namespace amalgam has no function of these names, so only the user's are found.
template <typename T, typename Archive>
concept free_serialize = requires(T& x, Archive& a) {
    serialize(a, x);
};
template <typename T, typename Archive>
concept free_save = requires(const T& x, Archive& a) {
    save(a, x);
};
template <typename T, typename Archive>
concept free_load = requires(T& x, Archive& a) {
    load(a, x);
};

template <typename T, typename Archive>
void save_user(Archive& a, const T& x) {
    if constexpr (member_save<T, Archive>) {
        x.save(a);
    } else if constexpr (member_serialize<T, Archive>) {
        const_cast<T&>(x).serialize(a);  // serialize() is one function for both directions.
    } else if constexpr (free_save<T, Archive>) {
        save(a, x);
    } else {
        serialize(a, const_cast<T&>(x));
    }
}

template <typename T, typename Archive>
void load_user(Archive& a, T& x) {
    if (!a.enter()) return;
    if constexpr (member_load<T, Archive>) {
        x.load(a);
    } else if constexpr (member_serialize<T, Archive>) {
        x.serialize(a);
    } else if constexpr (free_load<T, Archive>) {
        load(a, x);
    } else {
        serialize(a, x);
    }
    a.leave();
}

template <typename T>
concept user_serializable = member_serialize<T, archive_writer> ||
                            free_serialize<T, archive_writer> ||
                            (member_save<T, archive_writer>&& member_load<T, archive_reader>) ||
                            (free_save<T, archive_writer> && free_load<T, archive_reader>);

template <typename T>
inline constexpr bool never = false;

}  // namespace detail

/// How a `T` travels: `save(archive, value)`, `load(archive, value)`, and the fewest bytes it
/// takes. Users need not specialize it; a `serialize` member or function of their own does.
///
/// The primary template serves numbers, enums, trivially serializable types and users' types,
/// which must write at least one byte each.
template <typename T>
struct codec {
    static constexpr std::size_t min_bytes =
        detail::wire_number<T> || detail::bulk<T> ? sizeof(T) : 1;

    template <typename Archive>
    static void save(Archive& a, const T& x) {
        if constexpr (std::is_same_v<T, bool>) {
            a.scalar(static_cast<std::uint8_t>(x ? 1 : 0));
        } else if constexpr (detail::wire_number<T>) {
            a.scalar(x);
        } else if constexpr (detail::bulk<T>) {
            static_assert(std::is_trivially_copyable_v<T>,
                          "a trivially serializable type must be trivially copyable");
            a.raw(&x, sizeof(T));
        } else {
            require_user();
            detail::save_user(a, x);
        }
    }

    template <typename Archive>
    static void load(Archive& a, T& x) {
        if constexpr (std::is_same_v<T, bool>) {
            x = a.template scalar<std::uint8_t>() != 0;
        } else if constexpr (detail::wire_number<T>) {
            x = a.template scalar<T>();
        } else if constexpr (detail::bulk<T>) {
            const_bytes from = a.raw(sizeof(T));
            if (!from.empty()) std::memcpy(&x, from.data(), sizeof(T));
        } else {
            require_user();
            detail::load_user(a, x);
        }
    }

private:
    static constexpr void require_user() {
        static_assert(!std::is_pointer_v<T>,
                      "a pointer means nothing to another process: pass the value, a "
                      "std::unique_ptr, or a bulk descriptor");
        static_assert(std::is_pointer_v<T> || detail::user_serializable<T>,
                      "this type cannot travel yet: give it "
                      "template <class A> void serialize(A& a) { a(member, another); } "
                      "or a free serialize(A&, T&) beside it");
    }
};

/// True when values of `T` can be sent and received.
template <typename T>
concept serializable = detail::wire_number<T> || std::is_same_v<T, bool> || detail::bulk<T> ||
    detail::user_serializable<T> || requires {
    typename codec<T>::for_library_type;
};

}  // namespace amalgam

#include <amalgam/rpc/codec_std.hpp>
