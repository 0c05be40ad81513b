#pragma once

#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

/// What an item is to an archive: a number, a container, or something with functions of its own.
namespace ff::detail {

template <typename T, typename = void>
struct is_pair_like : std::false_type {};
template <typename A, typename B>
struct is_pair_like<std::pair<A, B>> : std::true_type {};

template <typename T, typename A, typename = void>
struct has_member_serialize : std::false_type {};
template <typename T, typename A>
struct has_member_serialize<T, A,
                            std::void_t<decltype(std::declval<T&>().serialize(std::declval<A&>()))>>
    : std::true_type {};
template <typename T, typename A, typename = void>
struct has_free_serialize : std::false_type {};
template <typename T, typename A>
struct has_free_serialize<T, A,
                          std::void_t<decltype(serialize(std::declval<A&>(), std::declval<T&>()))>>
    : std::true_type {};
template <typename T, typename A, typename = void>
struct has_member_save : std::false_type {};
template <typename T, typename A>
struct has_member_save<T, A,
                       std::void_t<decltype(std::declval<const T&>().save(std::declval<A&>()))>>
    : std::true_type {};
template <typename T, typename A, typename = void>
struct has_member_load : std::false_type {};
template <typename T, typename A>
struct has_member_load<T, A, std::void_t<decltype(std::declval<T&>().load(std::declval<A&>()))>>
    : std::true_type {};
template <typename T, typename A, typename = void>
struct has_free_save : std::false_type {};
template <typename T, typename A>
struct has_free_save<T, A,
                     std::void_t<decltype(save(std::declval<A&>(), std::declval<const T&>()))>>
    : std::true_type {};
template <typename T, typename A, typename = void>
struct has_free_load : std::false_type {};
template <typename T, typename A>
struct has_free_load<T, A, std::void_t<decltype(load(std::declval<A&>(), std::declval<T&>()))>>
    : std::true_type {};

// Shapes of the standard library's types, by their members.
template <typename T, typename = void>
struct is_sequence : std::false_type {};
template <typename T, typename A>
struct is_sequence<std::vector<T, A>> : std::true_type {};
template <typename T, typename A>
struct is_sequence<std::deque<T, A>> : std::true_type {};
template <typename T, typename A>
struct is_sequence<std::list<T, A>> : std::true_type {};
template <typename T>
struct is_set : std::false_type {};
template <typename... T>
struct is_set<std::set<T...>> : std::true_type {};
template <typename... T>
struct is_set<std::multiset<T...>> : std::true_type {};
template <typename... T>
struct is_set<std::unordered_set<T...>> : std::true_type {};
template <typename T>
struct is_map : std::false_type {};
template <typename... T>
struct is_map<std::map<T...>> : std::true_type {};
template <typename... T>
struct is_map<std::multimap<T...>> : std::true_type {};
template <typename... T>
struct is_map<std::unordered_map<T...>> : std::true_type {};
template <typename T>
struct is_tuple : std::false_type {};
template <typename... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <typename T>
struct is_std_array : std::false_type {};
template <typename T, std::size_t N>
struct is_std_array<std::array<T, N>> : std::true_type {};
template <typename T>
struct is_string : std::false_type {};
template <typename C, typename... Rest>
struct is_string<std::basic_string<C, Rest...>> : std::true_type {};
template <typename T>
struct is_optional : std::false_type {};
template <typename T>
struct is_optional<std::optional<T>> : std::true_type {};
template <typename T>
struct is_unique_ptr : std::false_type {};
template <typename T>
struct is_unique_ptr<std::unique_ptr<T>> : std::true_type {};

template <typename T>
inline constexpr bool is_plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T>
inline constexpr bool is_standard =
    is_sequence<T>::value || is_set<T>::value || is_map<T>::value || is_tuple<T>::value ||
    is_std_array<T>::value || is_string<T>::value || is_optional<T>::value ||
    is_unique_ptr<T>::value || is_pair_like<T>::value || std::is_array_v<T>;

/// Arrays and vectors of these are written at once.
template <typename T, typename = void>
struct is_plain_vector : std::false_type {};
template <typename T, typename A>
struct is_plain_vector<std::vector<T, A>>
    : std::bool_constant<is_plain<T> && !std::is_same_v<T, bool>> {};
template <typename T>
inline constexpr bool has_plain_elements =
    is_plain<std::remove_cv_t<std::remove_reference_t<decltype(std::declval<T&>()[0])>>>;

}  // namespace ff::detail
