#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <ff/distributed/message.hpp>

/// Functions beside an item by which it becomes bytes and an item again, as in versions of FastFlow
/// before the members (T: the item; found in T's namespace):
///
///     bool serialize(std::pair<char*, size_t>&, T*);                  // points it at the bytes
///     void serializefreetask(char*, T*);                              // instead of delete
///     void deserializealloctask(const std::pair<char*, size_t>&, T*&);  // instead of new
///     bool deserialize(const std::pair<char*, size_t>&, T*);
///
/// True: the bytes were copied. What serialize() copied to is the runtime's, which free()s it; what
/// deserialize() has not copied is the item's. In still older ones serialize() and
/// deserialize(const std::pair<char*, size_t>&, T*&) return nothing: the bytes are the item's own
/// memory, which is free()d when they have left, and made the item at the other end.
namespace ff::detail {

using byte_range = std::pair<char*, size_t>;

struct not_there {};

// What each returns; not_there where there is none.
template <typename T, typename = void>
struct free_serialize {
    using type = not_there;
};
template <typename T>
struct free_serialize<
    T, std::void_t<decltype(serialize(std::declval<byte_range&>(), std::declval<T*>()))>> {
    using type = decltype(serialize(std::declval<byte_range&>(), std::declval<T*>()));
};
template <typename T, typename = void>
struct free_deserialize {
    using type = not_there;
};
template <typename T>
struct free_deserialize<
    T, std::void_t<decltype(deserialize(std::declval<const byte_range&>(), std::declval<T*>()))>> {
    using type = decltype(deserialize(std::declval<const byte_range&>(), std::declval<T*>()));
};
template <typename T, typename = void>
struct free_deserialize_new {
    using type = not_there;
};
template <typename T>
struct free_deserialize_new<
    T, std::void_t<decltype(deserialize(std::declval<const byte_range&>(), std::declval<T*&>()))>> {
    using type = decltype(deserialize(std::declval<const byte_range&>(), std::declval<T*&>()));
};

template <typename T>
inline constexpr bool has_free_bytes = std::is_same_v<typename free_serialize<T>::type, bool> ||
                                       std::is_void_v<typename free_serialize<T>::type>;
template <typename T>
inline constexpr bool has_free_read = std::is_same_v<typename free_deserialize<T>::type, bool>;
/// The one that makes the item, too.
template <typename T>
inline constexpr bool has_free_read_new =
    !has_free_read<T> && (std::is_same_v<typename free_deserialize_new<T>::type, bool> ||
                          std::is_void_v<typename free_deserialize_new<T>::type>);

template <typename T, typename = void>
struct has_free_freetask : std::false_type {};
template <typename T>
struct has_free_freetask<
    T, std::void_t<decltype(serializefreetask(std::declval<char*>(), std::declval<T*>()))>>
    : std::true_type {};
template <typename T, typename = void>
struct has_free_alloctask : std::false_type {};
template <typename T>
struct has_free_alloctask<T, std::void_t<decltype(deserializealloctask(
                                 std::declval<const byte_range&>(), std::declval<T*&>()))>>
    : std::true_type {};

template <typename T>
bool free_function_serialize(void* item, message2_t* to) {
    byte_range bytes{nullptr, 0};
    bool copied = false;
    if constexpr (std::is_void_v<typename free_serialize<T>::type>)
        serialize(bytes, static_cast<T*>(item));
    else
        copied = serialize(bytes, static_cast<T*>(item));
    to->data = bytes.first;
    to->size = bytes.second;
    to->cleanup = copied || std::is_void_v<typename free_serialize<T>::type>;
    return copied;
}
template <typename T>
void free_function_freetask(void* item) {
    serializefreetask(static_cast<char*>(item), static_cast<T*>(item));
}
template <typename T>
void* free_function_alloctask(char* bytes, size_t count) {
    const byte_range range(bytes, count);
    T* item = nullptr;
    deserializealloctask(range, item);
    return item;
}

}  // namespace ff::detail
