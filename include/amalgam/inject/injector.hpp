#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/inject/detail/decoded.hpp>
#include <amalgam/inject/detail/growing_bytes.hpp>
#include <amalgam/inject/detail/started_call.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/type_name.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

namespace detail {
class source_core;
struct payload_memory;
struct source_image;
}  // namespace detail

/// How an image's code gets to where it runs.
enum class shipping : std::uint8_t {
    once,   ///< When it is used there for the first time, or was forgotten: then only its hash.
    always  ///< With every message: the target need not keep anything.
};

/// A message to code that travels: an image, and what that is to work on.
///
/// Owner:   its payload. Can be sent many times, also at once; not changed meanwhile.
/// Threads: const members may run concurrently.
class injection {
public:
    injection() noexcept = default;  ///< None.

    /// As long as it was asked for, or as the image has made it; of a message that is none: empty.
    mutable_bytes payload() noexcept;
    const_bytes payload() const noexcept;
    /// Lets the code read or write this memory, which may be of any process: returns the number by
    /// which it names it (see image.h, injected.hpp). Who exposed it says how long it is there.
    unsigned attach(bulk what);

    /// Runs it there; what it gave as its result. Parks the ULT or thread.
    /// Failure: throws what rpc does; error{invalid} for a message that is none; {denied} when the
    ///          target does not let this image run, {not_found} when it has no injection_target, or
    ///          does not export what the image imports, {handler_failed} with what it threw.
    std::vector<std::byte> call(
        const peer& there, std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    /// The same without waiting: in a ULT of the engine. To cancel() the future, or to destroy it,
    /// cancels the call, here and there.
    future<std::vector<std::byte>> start(
        const peer& there, std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    /// Has it run there, and wants to know nothing. The payload is not copied when it is long. Of
    /// the first ones to a target later ones may run sooner.
    void post(const peer& there) const;

private:
    friend class injected_function;
    friend class injection_ring_writer;
    std::shared_ptr<detail::source_core> core_;
    std::shared_ptr<const detail::source_image> image_;
    std::shared_ptr<detail::payload_memory> payload_;
    std::vector<bulk> attached_;
    shipping how_ = shipping::once;
};

/// An image, registered where its messages are made.
///
/// Owner:   a handle. As long as one, or a message of it, is there targets may ask for its code.
/// Threads: any.
class injected_function {
public:
    injected_function() noexcept = default;  ///< None.

    /// Of a function that is none: no image.
    const code_image& image() const noexcept;
    /// A message whose payload the image itself makes: its NAME_payload_get_max_size() says how
    /// long that gets at most, its NAME_payload_init() writes it in its place. See image.h.
    /// Failure: throws error{not_found} when the image has no such functions, {handler_failed} when
    ///          payload_init does not return 0 or one of them throws, {no_memory}.
    injection create(const_bytes source_args, shipping how = shipping::once) const;
    /// A message with a payload of so many bytes, zeros.
    /// Failure: throws error{no_memory}; both throw error{invalid} for a function that is none.
    injection create(std::size_t payload_bytes, shipping how = shipping::once) const;

private:
    friend class injector;
    template <typename Signature>
    friend class injected_procedure;
    pool& where_started() const;
    void check_signature(const std::string& expected) const;

    std::shared_ptr<detail::source_core> core_;
    std::shared_ptr<const detail::source_image> image_;
};

template <typename Signature>
class injected_procedure;

/// The same with arguments and a result: an image that was made by AMALGAM_INJECT. Where the
/// signature has a `bulk` the function has an attached_bulk.
///
/// Owner, threads and failure: as injected_function and injection; error{mismatch} when the result
/// is another one than was expected. The constructor throws error{invalid} for a function that is
/// none, {mismatch} when the image has another signature, as far as it is known here: images say
/// it, but those for other processors only, and those that AMALGAM_INJECT has not made, do not.
template <typename R, typename... A>
class injected_procedure<R(A...)> {
public:
    explicit injected_procedure(injected_function function, shipping how = shipping::once)
        : function_(std::move(function)), how_(how) {
        function_.check_signature(signature_text<R(A...)>());
    }

    /// The same with a deadline, counted from each call.
    injected_procedure within(std::chrono::nanoseconds time) const {
        injected_procedure timed(*this);
        timed.within_ = time;
        return timed;
    }
    /// Runs it there; parks the ULT or thread.
    R call(const peer& there, const A&... arguments) const {
        return result_of(message(arguments...).call(there, within_));
    }
    /// The same without waiting: see injection::start().
    future<R> start(const peer& there, const A&... arguments) const {
        return (new detail::started_call<R>)
            ->launch(function_.where_started(),
                     [there, sent = message(arguments...), within = within_] {
                         return result_of(sent.call(there, within));
                     });
    }
    void post(const peer& there, const A&... arguments) const { message(arguments...).post(there); }

private:
    static R result_of(const std::vector<std::byte>& result) {
        if constexpr (!std::is_void_v<R>) {
            auto value = detail::decoded<R>(result);
            if (!value)
                throw error(errc::mismatch,
                            "an injected function gave another result than was "
                            "expected: is it this image's signature?");
            return std::move(*value);
        }
    }
    injection message(const A&... arguments) const {
        detail::growing_bytes into;
        basic_archive_writer<detail::growing_bytes> write(into);
        std::vector<bulk> attached;
        const auto write_one = [&]<typename T>(const T& argument) {
            if constexpr (std::is_same_v<T, bulk>) {
                write(static_cast<std::uint32_t>(attached.size()));
                attached.push_back(argument);
            } else {
                write(argument);
            }
        };
        (write_one(arguments), ...);
        injection made = function_.create(into.size(), how_);
        std::copy(into.data(), into.data() + into.size(), made.payload().data());
        for (bulk& each : attached)
            made.attach(std::move(each));
        return made;
    }

    injected_function function_;
    shipping how_;
    std::chrono::nanoseconds within_ = std::chrono::nanoseconds::max();
};

/// Sends code to where the data is.
///
///     am::injector inject(on);
///     const auto codec = inject.add(am::code_image::find("codec"));
///     codec.create(as_bytes_of(records)).call(store);
///
/// Owner:   borrows the engine, which outlives it; what was added may outlive it: calls still bring
///          its code, and targets that ask for it, as posts make them, get none.
/// Threads: any.
/// Failure: the constructor throws error{invalid} when the engine has one already.
class injector {
public:
    explicit injector(engine& on);
    injector(const injector&) = delete;
    injector& operator=(const injector&) = delete;
    ~injector();

    /// Links its payload functions here.
    /// Failure: throws error{invalid} for no image; what linking does: error{unsupported},
    ///          {not_found}; {handler_failed} when a static object of it throws.
    injected_function add(code_image image);
    /// Of an image that was made by AMALGAM_INJECT.
    /// Failure: as add(); error{mismatch} when it was made of a function of another signature.
    template <typename Signature>
    injected_procedure<Signature> add(code_image image, shipping how = shipping::once) {
        return injected_procedure<Signature>(add(std::move(image)), how);
    }

private:
    std::shared_ptr<detail::source_core> core_;
};

}  // namespace amalgam
