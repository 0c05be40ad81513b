#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/detail/user_types.hpp>

namespace amalgam {

/// Encoding of `T`: `save(archive, value)`, `load(archive, value)`, and the minimum encoded size.
/// Users need not specialize it; a `serialize` member or free function suffices.
///
/// The primary template serves numbers, enums, trivially serializable types and user types. User
/// types must write at least one byte each to be elements of containers.
template <typename T>
struct codec {
    /// Least bytes a value takes, so that a length is checked before elements are made.
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
            a.elements(&x, 1);
        } else if constexpr (detail::complex_like<T>) {
            a(x.real(), x.imag());
        } else {
            require_user();
            detail::save_user(a, x);
        }
    }

    template <typename Archive>
    static void load(Archive& a, T& x) {
        if constexpr (std::is_same_v<T, bool>) {
            const auto found = a.template scalar<std::uint8_t>();
            if (found > 1 && a.is_xdr()) a.fail("a bool is neither 0 nor 1");
            x = found != 0;
        } else if constexpr (detail::wire_number<T>) {
            x = a.template scalar<T>();
        } else if constexpr (detail::bulk<T>) {
            a.elements(&x, 1);
        } else if constexpr (detail::complex_like<T>) {
            typename T::value_type real{}, imag{};
            a(real, imag);
            x = T(real, imag);
        } else {
            require_user();
            detail::load_user(a, x);
        }
    }

private:
    static constexpr void require_user() {
        static_assert(!std::is_pointer_v<T>,
                      "a pointer is meaningless in another process: pass the value, a "
                      "std::unique_ptr, or a bulk descriptor");
        static_assert(
            std::is_pointer_v<T> || detail::user_serializable<T>,
            "this type is not serializable: define template <class A> void serialize(A& a) { "
            "a(member, another); } in it, or a free serialize(A&, T&) in its namespace; if its "
            "members are private, also add friend class amalgam::serialization_access;");
    }
};

/// True when values of `T` can be sent and received.
template <typename T>
concept serializable = detail::wire_number<T> || std::is_same_v<T, bool> || detail::bulk<T> ||
    detail::complex_like<T> || detail::user_serializable<T> || requires {
    typename codec<T>::for_library_type;
};

namespace detail {

/// Reads a new `T`. A self-loading type is constructed even after an error, from zeros.
template <typename T, typename Archive>
T load_new(Archive& a) {
    if constexpr (self_loading<T>) {
        struct nesting {
            explicit nesting(Archive& in) : archive(in) { archive.enter(); }
            ~nesting() { archive.leave(); }
            Archive& archive;
        } const one_deeper(a);
        return T::amalgam_load(a);
    } else {
        static_assert(std::is_default_constructible_v<T>,
                      "this type cannot be deserialized: give it a default constructor, or static "
                      "T amalgam_load(amalgam::archive_reader&)");
        T fresh{};
        codec<T>::load(a, fresh);
        return fresh;
    }
}

}  // namespace detail

}  // namespace amalgam

#include <amalgam/rpc/codec_containers.hpp>
#include <amalgam/rpc/codec_std.hpp>
