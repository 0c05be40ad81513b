#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

namespace amalgam {

// Only declared: archive.hpp includes the users of this file at its end.
template <typename Into>
class basic_archive_writer;
class body;
using archive_writer = basic_archive_writer<body>;
class archive_reader;

/// Make this a friend of a class with a private serialize(), save() or load().
class serialization_access {
public:
    template <typename T, typename Archive>
    static auto serialize(T& x, Archive& a) -> decltype(x.serialize(a)) {
        return x.serialize(a);
    }
    template <typename T, typename Archive>
    static auto save(const T& x, Archive& a) -> decltype(x.save(a)) {
        return x.save(a);
    }
    template <typename T, typename Archive>
    static auto load(T& x, Archive& a) -> decltype(x.load(a)) {
        return x.load(a);
    }
    template <typename T, typename Archive>
    static auto save_minimal(const T& x, const Archive& a) -> decltype(x.save_minimal(a)) {
        return x.save_minimal(a);
    }
    template <typename T, typename Archive, typename Value>
    static auto load_minimal(T& x, const Archive& a, const Value& value)
        -> decltype(x.load_minimal(a, value)) {
        return x.load_minimal(a, value);
    }
};

}  // namespace amalgam

/// Serialization of user types: cereal's conventions, as members or as free functions in the type's
/// namespace.
namespace amalgam::detail {

template <typename T, typename Archive>
concept member_serialize = requires(T& x, Archive& a) {
    serialization_access::serialize(x, a);
};
template <typename T, typename Archive>
concept member_save = requires(const T& x, Archive& a) {
    serialization_access::save(x, a);
};
template <typename T, typename Archive>
concept member_load = requires(T& x, Archive& a) {
    serialization_access::load(x, a);
};
template <typename T, typename Archive>
concept member_save_minimal = requires(const T& x, const Archive& a) {
    serialization_access::save_minimal(x, a);
};

// Namespace amalgam has no functions of these names, so only the user's are found.
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
concept free_save_minimal = requires(const T& x, const Archive& a) {
    save_minimal(a, x);
};

/// The single value that represents a `T` with save_minimal.
template <typename T, typename Archive>
auto minimal_of(const Archive& a, const T& x) {
    if constexpr (member_save_minimal<T, Archive>) {
        return serialization_access::save_minimal(x, a);
    } else {
        return save_minimal(a, x);
    }
}

template <typename T>
concept has_member_save = member_save<T, archive_writer> || member_serialize<T, archive_writer> ||
    member_save_minimal<T, archive_writer>;
template <typename T>
concept has_save = has_member_save<T> || free_save<T, archive_writer> ||
    free_serialize<T, archive_writer> || free_save_minimal<T, archive_writer>;

/// Has `static T amalgam_load(archive)`, a template or taking an archive_reader: for types without
/// a default constructor.
template <typename T>
concept self_loading = requires(archive_reader& a) {
    { T::amalgam_load(a) } -> std::same_as<T>;
};

template <typename T>
concept has_load =
    self_loading<T> || member_load<T, archive_reader> || member_serialize<T, archive_reader> ||
    free_load<T, archive_reader> || free_serialize<T, archive_reader> ||
    member_save_minimal<T, archive_writer> || free_save_minimal<T, archive_writer>;

template <typename T>
concept user_serializable = has_save<T> && has_load<T>;

template <typename T, typename Archive>
void save_user(Archive& a, const T& x) {
    if constexpr (member_save<T, Archive>) {
        serialization_access::save(x, a);
    } else if constexpr (member_serialize<T, Archive>) {
        // One serialize() serves both directions.
        serialization_access::serialize(const_cast<T&>(x), a);
    } else if constexpr (free_save<T, Archive>) {
        save(a, x);
    } else if constexpr (free_serialize<T, Archive>) {
        serialize(a, const_cast<T&>(x));
    } else {
        a(minimal_of(a, x));
    }
}

template <typename T, typename Archive>
void load_user(Archive& a, T& x) {
    if (!a.enter()) return;
    if constexpr (member_load<T, Archive>) {
        serialization_access::load(x, a);
    } else if constexpr (member_serialize<T, Archive>) {
        serialization_access::serialize(x, a);
    } else if constexpr (free_load<T, Archive>) {
        load(a, x);
    } else if constexpr (free_serialize<T, Archive>) {
        serialize(a, x);
    } else if constexpr (self_loading<T>) {
        x = T::amalgam_load(a);
    } else {
        using value = decltype(minimal_of(std::declval<const archive_writer&>(), x));
        value minimal{};
        a(minimal);
        if (a.ok()) {
            if constexpr (member_save_minimal<T, archive_writer>) {
                serialization_access::load_minimal(x, std::as_const(a), minimal);
            } else {
                load_minimal(std::as_const(a), x, minimal);
            }
        }
    }
    a.leave();
}

}  // namespace amalgam::detail
