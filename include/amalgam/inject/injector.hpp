#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
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

/// How code reaches its target.
enum class shipping : std::uint8_t {
    once,   ///< On first use there, or if it was dropped; otherwise only its hash.
    always  ///< With every message: the target need not keep it.
};

/// A message that runs an image at a target: the image and its payload.
///
/// Owner:   its payload. May be sent many times, also concurrently; do not modify it meanwhile.
/// Threads: const members may run concurrently.
class injection {
public:
    injection() noexcept = default;  ///< Empty.

    /// As long as requested, or as made by the image; empty for an empty message.
    mutable_bytes payload() noexcept;
    const_bytes payload() const noexcept;
    /// Lets the code access this memory, of any process. Returns the number by which the code names
    /// it (see image.h, injected.hpp). The exposing side controls its lifetime.
    unsigned attach(bulk what);

    /// Runs it at `there` and returns its result. Parks the ULT or thread.
    /// Failure: throws what rpc does; error{invalid} for an empty message; {denied} if the target's
    ///          policy rejects the image; {not_found} if the peer has no injection_target or does
    ///          not export a symbol the image imports; {handler_failed} with the message of its
    ///          exception.
    std::vector<std::byte> call(
        const peer& there, std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    /// The same without waiting, in a ULT of the engine. Canceling or destroying the future cancels
    /// the call, here and there.
    future<std::vector<std::byte>> start(
        const peer& there, std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    /// Fire and forget; reports no result. A long payload is not copied. The first messages to a
    /// target may be overtaken by later ones.
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

/// An image registered at the source, where its messages are made.
///
/// Owner:   a handle. Targets can request its code while a handle or a message of it exists.
/// Threads: any.
class injected_function {
public:
    injected_function() noexcept = default;  ///< Empty.

    /// Empty for an empty function.
    const code_image& image() const noexcept;
    /// A message with a payload made by the image: NAME_payload_get_max_size() returns its maximum
    /// size, NAME_payload_init() writes it in place. See image.h.
    /// Failure: throws error{not_found} if the image lacks these functions, {handler_failed} if
    ///          payload_init does not return 0 or either throws, {no_memory}.
    injection create(const_bytes source_args, shipping how = shipping::once) const;
    /// A message with a zeroed payload of that size.
    /// Failure: throws error{no_memory}; both overloads throw error{invalid} for an empty function.
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

/// Its specialization for function types follows: injected_procedure<R(A...)>.
template <typename Signature>
class injected_procedure;

/// The same, typed: for an image made with AMALGAM_INJECT. A `bulk` in the signature corresponds to
/// an attached_bulk in the function.
///
/// Owner, threads and failure: as injected_function and injection; error{mismatch} if the result
/// has an unexpected type. The constructor throws error{invalid} for an empty function, {mismatch}
/// if the image is known to have another signature. It is unknown for images for other
/// architectures only, or made without AMALGAM_INJECT.
template <typename R, typename... A>
class injected_procedure<R(A...)> {
public:
    explicit injected_procedure(injected_function function, shipping how = shipping::once)
        : function_(std::move(function)), how_(how) {
        function_.check_signature(signature_text<R(A...)>());
    }

    /// A copy with a deadline of `time` from each call.
    injected_procedure within(std::chrono::nanoseconds time) const {
        injected_procedure timed(*this);
        timed.within_ = time;
        return timed;
    }
    /// Runs it at `there`; parks the ULT or thread.
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
                            "an injected function returned a result of another type; check that "
                            "the image has this signature");
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
/// Owner:   borrows the engine, which must outlive it. Added functions may outlive the injector:
///          their calls still carry the code, but targets that request it, as posts make them, get
///          none.
/// Threads: any.
/// Failure: the constructor throws error{invalid} if the engine already has an injector.
class injector {
public:
    explicit injector(engine& on);
    injector(const injector&) = delete;
    injector& operator=(const injector&) = delete;
    ~injector();

    /// Registers an image and links its payload functions here.
    /// Failure: throws error{invalid} for an empty image; linking errors: error{unsupported},
    ///          {not_found}; {handler_failed} if one of its static objects throws.
    injected_function add(code_image image);
    /// For an image made with AMALGAM_INJECT.
    /// Failure: as add(); error{mismatch} if it was made from a function with another signature.
    template <typename Signature>
    injected_procedure<Signature> add(code_image image, shipping how = shipping::once) {
        return injected_procedure<Signature>(add(std::move(image)), how);
    }

private:
    std::shared_ptr<detail::source_core> core_;
};

}  // namespace amalgam
