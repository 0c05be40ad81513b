#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// The types of a callable, from its one call operator.
template <typename F>
struct callable_signature : callable_signature<decltype(&F::operator())> {};
template <typename R, typename... A>
struct callable_signature<R (*)(A...)> {
    using type = R(A...);
};
template <typename R, typename... A>
struct callable_signature<R (*)(A...) noexcept> {
    using type = R(A...);
};
template <typename C, typename R, typename... A>
struct callable_signature<R (C::*)(A...)> {
    using type = R(A...);
};
template <typename C, typename R, typename... A>
struct callable_signature<R (C::*)(A...) const> {
    using type = R(A...);
};
template <typename C, typename R, typename... A>
struct callable_signature<R (C::*)(A...) noexcept> {
    using type = R(A...);
};
template <typename C, typename R, typename... A>
struct callable_signature<R (C::*)(A...) const noexcept> {
    using type = R(A...);
};

/// What the engine calls when a request arrives; knows the types.
class handler_base {
public:
    virtual ~handler_base() = default;
    /// Reads the arguments, runs, writes the result. False: the arguments do not fit the
    /// types, and nothing ran. Throws what the user's function throws.
    virtual bool invoke(archive_reader& arguments, archive_writer& result) = 0;
};

template <typename T>
inline constexpr bool is_out_parameter =
    std::is_lvalue_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>;

template <typename Function, typename Signature>
class typed_handler;

template <typename Function, typename R, typename... A>
class typed_handler<Function, R(A...)> final : public handler_base {
    static_assert((!is_out_parameter<A> && ...),
                  "a handler's parameter cannot be a mutable reference: the caller's variable "
                  "is in another process; return the value instead");
    static_assert(std::is_invocable_r_v<R, Function&, A...>,
                  "the handler cannot be called with the signature's arguments");

public:
    explicit typed_handler(Function function) : function_(std::move(function)) {}

    bool invoke(archive_reader& arguments, archive_writer& result) override {
        all values = read(arguments);
        if (!arguments.ok() || arguments.remaining() != 0) return false;
        auto call = [this](auto&... each) -> R { return function_(static_cast<A&&>(each)...); };
        if constexpr (std::is_void_v<R>) {
            std::apply(call, values);
        } else {
            result(std::apply(call, values));
        }
        return true;
    }

private:
    using all = std::tuple<std::remove_cvref_t<A>...>;

    static all read(archive_reader& from) {
        if constexpr ((std::is_default_constructible_v<std::remove_cvref_t<A>> && ...)) {
            all values{};
            std::apply([&](auto&... each) { from(each...); }, values);
            return values;
        } else {
            return all{load_new<std::remove_cvref_t<A>>(from)...};  // Braces keep the order.
        }
    }

    Function function_;
};

}  // namespace amalgam::detail
