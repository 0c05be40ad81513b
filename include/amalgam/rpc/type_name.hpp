#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/codec_std.hpp>

namespace amalgam {

/// Name of `T` in signatures, identical on every compiler and platform where `T` is encoded the
/// same way: "i32", "string", "vector<f64>", "map<string,app::point>".
///
/// User types use their qualified C++ name. That differs between compilers for templates with value
/// parameters and for types defined in functions; such a type declares its name with a member
/// `static constexpr std::string_view amalgam_type_name = "app.matrix3";`.
template <typename T>
std::string type_name();

namespace detail {

/// Whether callers send a stream: its first argument is a streaming<T>.
constexpr bool takes_stream(std::string_view signature) noexcept {
    return signature.find("(stream<") != std::string_view::npos;
}

/// The compiler's spelling without decoration that differs between compilers: "(anonymous
/// namespace)", spaces after commas, "struct ".
std::string tidy_type_name(std::string_view pretty_function);
/// "i", 4 -> "i32".
std::string number_name(char kind, std::size_t bytes);
/// "1/1000" for a chrono period.
std::string ratio_name(std::intmax_t num, std::intmax_t den);

template <typename T>
std::string spelled() {
    return tidy_type_name(__PRETTY_FUNCTION__);
}

template <typename... T>
std::string type_names() {
    std::string all;
    ((all += all.empty() ? type_name<T>() : "," + type_name<T>()), ...);
    return all;
}

template <typename T>
struct namer {
    static std::string name() {
        if constexpr (requires { std::string_view(T::amalgam_type_name); }) {
            return std::string(std::string_view(T::amalgam_type_name));
        } else if constexpr (std::is_same_v<T, void>) {
            return "void";
        } else if constexpr (std::is_same_v<T, bool>) {
            return "bool";
        } else if constexpr (std::is_same_v<T, char>) {
            return "char";
        } else if constexpr (std::is_same_v<T, std::byte>) {
            return "byte";
        } else if constexpr (std::is_enum_v<T>) {
            return spelled<T>() + ":" + type_name<std::underlying_type_t<T>>();
        } else if constexpr (std::is_floating_point_v<T>) {
            return number_name('f', sizeof(T));
        } else if constexpr (std::is_integral_v<T>) {
            return number_name(std::is_signed_v<T> ? 'i' : 'u', sizeof(T));
        } else if constexpr (associative_container<T>) {
            if constexpr (requires { typename T::mapped_type; }) {
                return "map<" + type_names<typename T::key_type, typename T::mapped_type>() + ">";
            } else {
                return "set<" + type_name<typename T::key_type>() + ">";
            }
        } else if constexpr (std::is_same_v<T, std::string> ||
                             std::is_same_v<T, std::string_view> || path_like<T>) {
            return "string";
        } else if constexpr (contiguous_container<T> || sequence_container<T> ||
                             linked_container<T> || number_container<T> || container_adaptor<T>) {
            return "vector<" + type_name<typename T::value_type>() + ">";
        } else if constexpr (complex_like<T> && !user_serializable<T>) {
            return "complex<" + type_name<typename T::value_type>() + ">";
        } else {
            return spelled<T>();
        }
    }
};

// A user's class template with type parameters only: names its arguments our way, not the
// compiler's.
template <template <typename...> class C, typename... A>
requires(user_serializable<C<A...>> &&
         !requires { C<A...>::amalgam_type_name; }) struct namer<C<A...>> {
    static std::string name() {
        std::string whole = spelled<C<A...>>();
        return whole.substr(0, whole.find('<')) + "<" + type_names<A...>() + ">";
    }
};
template <typename T>
struct namer<std::span<const T>> {
    static std::string name() { return "vector<" + type_name<T>() + ">"; }
};
template <typename T, std::size_t N>
struct namer<std::array<T, N>> {
    static std::string name() { return "array<" + type_name<T>() + "," + std::to_string(N) + ">"; }
};
template <typename A, typename B>
struct namer<std::pair<A, B>> {
    static std::string name() { return "tuple<" + type_names<A, B>() + ">"; }
};
template <typename... T>
struct namer<std::tuple<T...>> {
    static std::string name() { return "tuple<" + type_names<T...>() + ">"; }
};
template <typename T>
struct namer<std::optional<T>> {
    static std::string name() { return "optional<" + type_name<T>() + ">"; }
};
template <typename T>
struct namer<std::unique_ptr<T>> {
    static std::string name() { return "optional<" + type_name<T>() + ">"; }
};
template <typename T>
struct namer<std::shared_ptr<T>> {
    static std::string name() { return "optional<" + type_name<T>() + ">"; }
};
template <template <std::size_t> typename Bits, std::size_t N>
requires(bits_like<Bits<N>>) struct namer<Bits<N>> {
    static std::string name() { return "bitset<" + std::to_string(N) + ">"; }
};
template <>
struct namer<std::monostate> {
    static std::string name() { return "none"; }
};
template <typename... T>
struct namer<std::variant<T...>> {
    static std::string name() { return "variant<" + type_names<T...>() + ">"; }
};
template <typename Rep, typename Period>
struct namer<std::chrono::duration<Rep, Period>> {
    static std::string name() {
        return "duration<" + type_name<Rep>() + "," + ratio_name(Period::num, Period::den) + ">";
    }
};
template <typename Clock, typename Duration>
struct namer<std::chrono::time_point<Clock, Duration>> {
    static std::string name() {
        bool wall = std::is_same_v<Clock, std::chrono::system_clock>;
        return (wall ? "time<" : "instant<") + type_name<Duration>() + ">";
    }
};

template <typename Signature>
struct signature_of;
template <typename R, typename... A>
struct signature_of<R(A...)> {
    static std::string text() {
        return type_name<std::remove_cvref_t<R>>() + "(" + type_names<std::remove_cvref_t<A>...>() +
               ")";
    }
};

}  // namespace detail

template <typename T>
std::string type_name() {
    return detail::namer<std::remove_cv_t<T>>::name();
}

/// "i32(i32,string)" for int(int, const std::string&). Caller and server compare these.
template <typename Signature>
std::string signature_text() {
    return detail::signature_of<Signature>::text();
}

}  // namespace amalgam
