#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/call_context.hpp>

namespace amalgam {

namespace detail {
struct origin;
class item_sender_base;
/// Throws error{unsupported} if the message being read lends memory.
void refuse_loans(const origin* between);
}  // namespace detail

/// Arguments or a result as they travel, undecoded.
///
/// Owner:   owns its bytes.
/// Threads: like a plain value.
struct raw_values {
    std::vector<std::byte> bytes{};  ///< The values, one behind the other.
    encoding as = encoding::native;  ///< How they are encoded.

    /// Encodes the values: the arguments of a call, or its result.
    template <typename... T>
    static raw_values of(const T&... values) {
        body room;
        archive_writer to(room);
        to(values...);
        return {{room.bytes().begin(), room.bytes().end()}, encoding::native};
    }
};

/// A call as a handler sees it that knows no types: see engine::define_raw() and define_any().
///
/// Memory does not pass through a raw handler, only bytes do: a bulk descriptor in arguments or in
/// a result names the connection that it came by, so behind a proxy its transfers end `denied`.
/// Short read-only ones carry their bytes, and pass. A result that lends memory (expose_owned()) is
/// refused with `unsupported`.
/// Owner:   the engine; lives until the handler returns, as do the views it gives out.
/// Threads: the handler's.
class raw_call {
public:
    /// `items`: null unless it is answered by a stream.
    raw_call(const call_context& about, std::string_view signature, const_bytes arguments,
             encoding as, detail::item_sender_base* items) noexcept
        : about_(about), signature_(signature), arguments_(arguments), as_(as), items_(items) {}
    raw_call(const raw_call&) = delete;
    raw_call& operator=(const raw_call&) = delete;

    /// The procedure that was called.
    std::string_view name() const noexcept { return about_.procedure(); }
    /// As the caller has it: "i32(i32,string)".
    std::string_view signature() const noexcept { return signature_; }
    /// Not checked against the signature.
    const_bytes arguments() const noexcept { return arguments_; }
    /// Of the arguments. The result must use the same.
    encoding values_as() const noexcept { return as_; }
    const call_context& about() const noexcept { return about_; }
    /// The caller expects a stream of values, by send(). What the handler returns is not used.
    bool is_streamed() const noexcept { return items_ != nullptr; }

    /// Sends the next value of a streamed answer, in the encoding of the arguments. Waits and fails
    /// as stream_writer.
    /// Failure: also throws error{invalid} for another encoding, or if the answer is no stream.
    void send(const raw_values& value) const;
    /// Calls the same procedure with the same arguments at `to`, which may be any peer of the
    /// serving engine, and returns its result for the handler to return. Parks the ULT. A one-way
    /// call is posted, and the result is empty. Values of a streamed answer are sent on as they
    /// come, no faster than the caller reads them and at most 64 ahead, fewer where
    /// engine_options::max_reader_bytes is reached; those larger than a message, one at a time.
    /// Then the result is empty. The deadline goes along; metadata and borrowed buffers do not.
    /// Failure: throws what calls throw, and in place of `handler_failed` the error of the handler
    ///          there, so that the first caller sees its code as handler_code().
    raw_values forward(const peer& to, std::uint16_t provider) const;
    /// To the provider that the caller asked for.
    raw_values forward(const peer& to) const { return forward(to, about_.provider()); }

private:
    const call_context& about_;
    std::string_view signature_;
    const_bytes arguments_;
    encoding as_;
    detail::item_sender_base* items_;
};

/// Settings of engine::call_raw().
struct raw_call_options {
    std::uint16_t provider = 0;  ///< Id of the provider at the peer; 0: none.
    /// Of the call; max(): none.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    bool one_way = false;  ///< Posted: the result is empty.
};

template <>
struct codec<raw_values> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 0;

    static void save(archive_writer& to, const raw_values& values) {
        to.raw(values.bytes.data(), values.bytes.size());
    }
    static void load(archive_reader& from, raw_values& values) {
        detail::refuse_loans(from.between());
        const const_bytes all = from.raw(from.remaining());
        values.bytes.assign(all.begin(), all.end());
        values.as = from.is_xdr() ? encoding::xdr : encoding::native;
    }
};

}  // namespace amalgam
