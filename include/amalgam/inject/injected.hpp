#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/alias.hpp>
#include <amalgam/inject/detail/decoded.hpp>
#include <amalgam/inject/detail/growing_bytes.hpp>
#include <amalgam/inject/detail/services.hpp>
#include <amalgam/inject/image.h>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>
#include <amalgam/rpc/type_name.hpp>

/// For an image's source file: makes a C++ function injectable, with any argument and result types
/// that procedures support (see rpc).
///
///     std::size_t count(store& where, const std::string& word) { … }
///     AMALGAM_INJECT(count)
///
/// The first parameter, a reference, is the target's injection_options::target_args. The others
/// come from the caller: `injector::add<std::size_t(std::string)>(image)`. Use it once per file;
/// the image takes the function's name. Build it with the headers of the release its targets use.
#define AMALGAM_INJECT(NAME)                                                       \
    AMALGAM_INJECTED(NAME)                                                         \
    void NAME##_main(void* payload, std::size_t payload_size, void* target_args) { \
        ::amalgam::detail::run_injected(NAME, payload, payload_size, target_args); \
    }                                                                              \
    extern "C" void NAME##_signature(amalgam_inject_taker take, void* into) {      \
        const std::string text = ::amalgam::detail::injected_signature(NAME);      \
        take(into, text.data(), text.size());                                      \
    }

namespace amalgam {

namespace detail {
/// Returns a service's result, or throws its error.
template <typename Ask>
std::vector<std::byte> ask_target(Ask ask) {
    std::vector<std::byte> got;
    const auto take = [](void* into, const void* data, std::size_t bytes) {
        const auto* const from = static_cast<const std::byte*>(data);
        static_cast<std::vector<std::byte>*>(into)->assign(from, from + bytes);
    };
    if (ask(take, &got) == 0) return got;
    throw std::runtime_error(std::string(reinterpret_cast<const char*>(got.data()), got.size()));
}
}  // namespace detail

/// For injected code: calls a procedure of another process, or of the sender's.
///
///     const auto price = amalgam::injected_call<double(std::string)>("price", address)("tea");
///
/// Types: as in the procedure's signature; no bulk.
/// Failure: throws std::runtime_error with the message; always throws in inline handlers and in
///          confined code.
template <typename Signature>
class injected_call;

template <typename R, typename... A>
class injected_call<R(A...)> {
public:
    /// Without an address: calls the sender of the code.
    explicit injected_call(std::string name, std::string address = {})
        : name_(std::move(name)), address_(std::move(address)) {}

    /// Parks the ULT until the result arrives.
    R operator()(const A&... arguments) const {
        detail::growing_bytes into;
        basic_archive_writer<detail::growing_bytes> write(into);
        write(arguments...);
        const auto got = detail::ask_target([&](amalgam_inject_taker take, void* context) {
            return amalgam_inject_call_typed(address_.c_str(), name_.c_str(),
                                             signature_text<R(A...)>().c_str(), into.data(),
                                             into.size(), take, context);
        });
        if constexpr (!std::is_void_v<R>) {
            auto value = detail::decoded<R>(got);
            if (!value)
                throw std::runtime_error("\"" + name_ + "\" returned a result of another type");
            return std::move(*value);
        }
    }

private:
    std::string name_;
    std::string address_;
};

/// For injected code: memory attached to its message, of the sender or another process. Use it as a
/// parameter of an injected function where the caller passes a bulk.
///
/// Failure: throws std::runtime_error with the message, like injected_call.
class attached_bulk {
public:
    /// `which`: the number returned by injection::attach().
    explicit attached_bulk(unsigned which = 0) noexcept : which_(which) {}

    std::uint64_t bytes() const noexcept {
        const long all = amalgam_inject_attached(which_);
        return all < 0 ? 0 : static_cast<std::uint64_t>(all);
    }
    /// Reads from `offset`, filling `into`. Parks the ULT until done.
    void pull(std::uint64_t offset, std::span<std::byte> into) const {
        transfer(false, offset, into.data(), into.size());
    }
    /// Writes into the memory at `offset`; the injected function waits for it.
    void push(std::uint64_t offset, std::span<const std::byte> from) const {
        transfer(true, offset, const_cast<std::byte*>(from.data()), from.size());
    }
    /// Reads all of it, as elements; drops a partial last element.
    template <typename T = std::byte>
    std::vector<T> pull_all() const {
        static_assert(std::is_trivially_copyable_v<T>, "the type must be trivially copyable");
        std::vector<T> all(bytes() / sizeof(T));
        pull(0, std::as_writable_bytes(std::span(all)));
        return all;
    }

    template <typename Archive>
    void serialize(Archive& a) {
        a(which_);
    }

    /// Its name in signatures, in which the caller passes a bulk.
    static constexpr std::string_view amalgam_type_name = "bulk";

private:
    void transfer(bool push, std::uint64_t offset, std::byte* at, std::size_t size) const {
        detail::ask_target([&](amalgam_inject_taker take, void* context) {
            return amalgam_inject_transfer(which_, push ? 1 : 0, offset, at, size, take, context);
        });
    }

    std::uint32_t which_;
};

}  // namespace amalgam

namespace amalgam::detail {

/// The signature of a procedure called the same way.
template <typename R, typename Target, typename... A>
std::string injected_signature(R (*)(Target&, A...)) {
    return signature_text<R(A...)>();
}

template <typename R, typename Target, typename... A>
void run_injected(R (*function)(Target&, A...), void* payload, std::size_t bytes, void* target) {
    archive_reader read({static_cast<const std::byte*>(payload), bytes});
    std::tuple<std::remove_cvref_t<A>...> arguments;
    std::apply([&](auto&... each) { read(each...); }, arguments);
    if (!read.ok() || read.remaining() != 0)
        throw std::invalid_argument("its arguments do not match its signature");
    const auto run = [&](auto&... each) -> R {
        return function(*static_cast<Target*>(target), std::forward<A>(each)...);
    };
    if constexpr (std::is_void_v<R>) {
        std::apply(run, arguments);
    } else {
        growing_bytes into;
        basic_archive_writer<growing_bytes> write(into);
        write(std::apply(run, arguments));
        amalgam_inject_result(into.data(), into.size());
    }
}

}  // namespace amalgam::detail
