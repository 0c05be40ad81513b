#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/detail/flat_values.hpp>
#include <amalgam/rpc/detail/outgoing_values.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>

namespace amalgam::detail {

/// Signature of a callable with a single call operator.
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

/// Maps a handler's signature to the one callers see, and to the way it answers.
template <typename Signature>
struct served {
    using signature = Signature;
    static constexpr answer_form form = answer_form::result;
    struct way {
        static constexpr bool returns = true;
        explicit way(const answer_way&) noexcept {}
        template <typename Function, typename... A>
        decltype(auto) call(Function& function, A&&... arguments) {
            return function(std::forward<A>(arguments)...);
        }
    };
};
template <typename R, typename... A>
struct served<void(responder<R>, A...)> {
    using signature = R(A...);
    static constexpr answer_form form = answer_form::late;
    struct way {
        static constexpr bool returns = false;
        explicit way(const answer_way& how) noexcept : late(*how.late) {}
        template <typename Function, typename... Arguments>
        void call(Function& function, Arguments&&... arguments) {
            function(responder<R>(late), std::forward<Arguments>(arguments)...);
        }
        late_answer_base& late;
    };
};
template <typename T, typename... A>
struct served<void(stream_writer<T>&, A...)> {
    using signature = streamed<T>(A...);
    static constexpr answer_form form = answer_form::items;
    struct way {
        static constexpr bool returns = false;
        explicit way(const answer_way& how) noexcept : out(*how.items) {}
        template <typename Function, typename... Arguments>
        void call(Function& function, Arguments&&... arguments) {
            function(out, std::forward<Arguments>(arguments)...);
        }
        stream_writer<T> out;
    };
};
template <typename R, typename T, typename... A>
struct served<R(stream_reader<T>&, A...)> {
    using signature = R(streaming<T>, A...);
    static constexpr answer_form form = answer_form::result;
    struct way {
        static constexpr bool returns = true;
        explicit way(const answer_way&) noexcept {}
        template <typename Function, typename... Arguments>
        R call(Function& function, const streaming<T>& which, Arguments&&... arguments) {
            stream_reader<T> in(which);
            return function(in, std::forward<Arguments>(arguments)...);
        }
    };
};
template <typename T, typename U, typename... A>
struct served<void(stream_reader<T>&, stream_writer<U>&, A...)> {
    using signature = streamed<U>(streaming<T>, A...);
    static constexpr answer_form form = answer_form::items;
    struct way {
        static constexpr bool returns = false;
        explicit way(const answer_way& how) noexcept : out(*how.items) {}
        template <typename Function, typename... Arguments>
        void call(Function& function, const streaming<T>& which, Arguments&&... arguments) {
            stream_reader<T> in(which);
            function(in, out, std::forward<Arguments>(arguments)...);
        }
        stream_writer<U> out;
    };
};
/// Of the library: a stream that is answered after the handler has returned.
template <typename... A>
struct served<void(values_opener, A...)> {
    using signature = streamed<any_values>(A...);
    static constexpr answer_form form = answer_form::late_items;
    struct way {
        static constexpr bool returns = false;
        explicit way(const answer_way& how) noexcept : opener{*how.late, *how.items} {}
        template <typename Function, typename... Arguments>
        void call(Function& function, Arguments&&... arguments) {
            function(opener, std::forward<Arguments>(arguments)...);
        }
        values_opener opener;
    };
};

/// What the engine invokes for a request; the derived class knows the types.
class handler_base {
public:
    virtual ~handler_base() = default;
    /// Reads the arguments, runs the function, and writes the result or answers through `how`.
    /// Returns false if the arguments do not match the types; the function has not run then. Throws
    /// what the user's function throws.
    virtual bool invoke(archive_reader& arguments, archive_writer& result,
                        const answer_way& how) = 0;
    /// Of the arguments, where these and the result are numbers only; else not_flat.
    virtual std::size_t flat_bytes() const noexcept { return not_flat; }
    /// As invoke(), for arguments of flat_bytes() in the native encoding.
    // Cold, or GCC asks first at each call whether it is this one.
    [[gnu::cold]] virtual flat_result invoke_flat(const std::byte* /*arguments*/) { return {}; }
};

template <typename T>
inline constexpr bool is_out_parameter =
    std::is_lvalue_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>;

template <typename Function, typename Signature>
inline constexpr bool callable_as = false;
template <typename Function, typename R, typename... A>
inline constexpr bool callable_as<Function, R(A...)> = std::is_invocable_r_v<R, Function&, A...>;

template <typename Function, typename Way, typename Signature>
class typed_handler;

/// `Signature`: as callers see it.
template <typename Function, typename Way, typename R, typename... A>
class typed_handler<Function, Way, R(A...)> final : public handler_base {
    static_assert((!is_out_parameter<A> && ...),
                  "a handler's parameter must not be a mutable reference, as the caller's variable "
                  "is in another process: return the value instead; a stream_reader, then a "
                  "stream_writer, are the first parameters");

public:
    explicit typed_handler(Function function) : function_(std::move(function)) {}

    bool invoke(archive_reader& arguments, archive_writer& result, const answer_way& how) override {
        all values = read(arguments);
        if (!arguments.ok() || arguments.remaining() != 0) return false;
        Way way(how);
        const auto call = [&](auto&... each) -> decltype(auto) {
            return way.call(function_, static_cast<A&&>(each)...);
        };
        if constexpr (std::is_void_v<R> || !Way::returns) {
            std::apply(call, values);
        } else {
            const std::remove_cvref_t<R>& value = std::apply(call, values);
            result(value);
        }
        return true;
    }

    std::size_t flat_bytes() const noexcept override {
        return is_flat ? (std::size_t{0} + ... + sizeof(std::remove_cvref_t<A>)) : not_flat;
    }
    flat_result invoke_flat([[maybe_unused]] const std::byte* arguments) override {
        if constexpr (is_flat) {
            all values = load_flat<std::remove_cvref_t<A>...>(arguments);
            const auto call = [&](auto&... each) -> decltype(auto) {
                return function_(static_cast<A&&>(each)...);
            };
            if constexpr (std::is_void_v<R>) {
                std::apply(call, values);
            } else {
                return to_flat<std::remove_cvref_t<R>>(std::apply(call, values));
            }
        }
        return {};
    }

private:
    using all = std::tuple<std::remove_cvref_t<A>...>;
    static constexpr bool is_flat =
        Way::returns && is_flat_result<R> && (flat_number<std::remove_cvref_t<A>> && ...);

    static all read(archive_reader& from) {
        if constexpr ((std::is_default_constructible_v<std::remove_cvref_t<A>> && ...)) {
            all values{};
            std::apply([&](auto&... each) { from(each...); }, values);
            return values;
        } else {
            // Braces guarantee evaluation order.
            return all{load_new<std::remove_cvref_t<A>>(from)...};
        }
    }

    Function function_;
};

}  // namespace amalgam::detail
