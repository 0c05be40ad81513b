#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/trace_context.hpp>

#include "rpc/limits.hpp"

/// The messages of rpc, byte by byte: see docs/wire/rpc.md. A message's tag is the call's id.
namespace amalgam::detail {

enum class message_kind : std::uint8_t {
    request = 1,  ///< Expects a reply with the same tag.
    one_way = 2,  ///< Expects none.
    reply = 3,    ///< Outcome of the request with that tag.
    cancel = 4,   ///< The reply with that tag is not wanted any more.
    verdict = 5,  ///< Outcome of verifying a one-way call's names.
    item = 6,     ///< One value of a streamed result, before its reply.
    credit = 7,   ///< Grants that many more items for that tag.
    release = 8,  ///< Borrowed buffers that are no longer used.
    mail = 9      ///< For the layer above: see extension/mail.hpp.
};

constexpr bool is_request(message_kind kind) noexcept {
    return kind == message_kind::request || kind == message_kind::one_way;
}

/// Flags in the header of a message.
namespace wire_flag {
inline constexpr std::uint8_t named = 1;    ///< Request, one-way: name and signature follow.
inline constexpr std::uint8_t xdr = 2;      ///< The values are in XDR.
inline constexpr std::uint8_t checked = 4;  ///< The last four bytes are a checksum.
inline constexpr std::uint8_t extras = 8;   ///< Extras follow.
inline constexpr std::uint8_t urgent = 16;  ///< Request, one-way: overtakes others.
}  // namespace wire_flag

/// Kinds of extras, by key. Readers skip unknown keys.
enum class extra : std::uint16_t {
    trace = 1,       ///< 32 bytes: a W3C trace context.
    metadata = 2,    ///< Once per entry: the length of its key (2), the key, the value.
    loans = 3,       ///< Ids, 8 bytes each, of borrowed buffers; see `release`.
    rendezvous = 4,  ///< 40 bytes: key of the memory with the values (rendezvous).
    window = 5,      ///< 8 bytes: a streamed result is wanted; the initial credit window in items.
    checksum = 6,    ///< 4 bytes: of values sent by rendezvous.
    times = 7        ///< 16 bytes: asked for by a request, told by the answer; see call_times.
};

inline constexpr std::size_t request_bytes = 16;
inline constexpr std::size_t reply_bytes = 8;
inline constexpr std::size_t cancel_bytes = 8;
inline constexpr std::size_t verdict_bytes = 16;
inline constexpr std::size_t credit_bytes = 8;
inline constexpr std::size_t release_bytes = 8;  ///< Without the ids.
inline constexpr std::size_t mail_bytes = 8;
inline constexpr std::size_t checksum_bytes = 4;

/// A parsed message. Views borrow from it.
struct parsed_message {
    parsed_message() noexcept {}  // Not a memset, which takes longer to start than the rest to run.

    message_kind kind = message_kind::request;
    std::uint8_t flags = 0;
    std::uint16_t provider = 0;      ///< Request, one-way.
    std::uint32_t microseconds = 0;  ///< Request, one-way: time left until the deadline; 0: none.
    std::uint32_t items = 0;         ///< Credit.
    std::uint64_t procedure = 0;     ///< Request, one-way, verdict.
    std::string_view name;           ///< Valid if `flags` has `named`.
    std::string_view signature;
    const_bytes extras;    ///< Well-formed, for find_extra(); empty: none.
    status what;           ///< Reply, item, verdict.
    const_bytes body;      ///< Arguments or result; text of a failure; ids of a release.
    bool corrupt = false;  ///< Wrong checksum; only `kind` can be trusted.

    bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
    bool named() const noexcept { return has(wire_flag::named); }
    encoding values_as() const noexcept {
        return has(wire_flag::xdr) ? encoding::xdr : encoding::native;
    }
};

/// The version of these messages, in their first byte.
inline constexpr std::uint8_t wire_version = 2;

/// Byte 0 of every message.
constexpr std::uint8_t first_byte(message_kind kind) noexcept {
    return static_cast<std::uint8_t>(wire_version << 4 | static_cast<std::uint8_t>(kind));
}

/// The first 8 bytes of the message that nearly every one is, as one number: no extras, names or
/// checksum, and a good status. Whoever finds it need not parse() the rest of the header.
namespace plain_head {
inline constexpr std::uint64_t request_xdr = std::uint64_t{wire_flag::xdr} << 8;
inline constexpr std::uint64_t request_provider = std::uint64_t{0xffff} << 16;
inline constexpr std::uint64_t request_microseconds = std::uint64_t{0xffffffff} << 32;
inline constexpr std::uint64_t reply_xdr = std::uint64_t{wire_flag::xdr} << 16;

/// Of either kind: all but what every such request may have.
constexpr std::uint64_t kind_of_request(std::uint64_t head) noexcept {
    return head & ~(request_xdr | request_provider | request_microseconds);
}
constexpr bool is_request(std::uint64_t head) noexcept {
    return kind_of_request(head) == first_byte(message_kind::request);
}
constexpr bool is_one_way(std::uint64_t head) noexcept {
    return kind_of_request(head) == first_byte(message_kind::one_way);
}
constexpr bool is_reply(std::uint64_t head) noexcept {
    return (head & ~reply_xdr) == first_byte(message_kind::reply);
}
constexpr bool is_mail(std::uint64_t head) noexcept {
    return head == first_byte(message_kind::mail);
}
constexpr std::uint16_t provider_of(std::uint64_t request) noexcept {
    return static_cast<std::uint16_t>(request >> 16);
}
/// As parsed_message::microseconds.
constexpr std::uint32_t microseconds_of(std::uint64_t request) noexcept {
    return static_cast<std::uint32_t>(request >> 32);
}
constexpr encoding encoding_of(std::uint64_t request) noexcept {
    return (request & request_xdr) != 0 ? encoding::xdr : encoding::native;
}
constexpr std::uint64_t of_request(message_kind kind, std::uint16_t provider, bool xdr,
                                   std::uint32_t microseconds) noexcept {
    return first_byte(kind) | (xdr ? request_xdr : 0) | std::uint64_t{provider} << 16 |
           std::uint64_t{microseconds} << 32;
}
constexpr std::uint64_t of_reply(bool xdr) noexcept {
    return first_byte(message_kind::reply) | (xdr ? reply_xdr : 0);
}
}  // namespace plain_head

/// Null if `bytes` are a valid message; else what is wrong, as a literal.
const char* parse(const_bytes bytes, parsed_message& into) noexcept;

/// The value under `key`, checked for its size; empty if missing.
const_bytes find_extra(const_bytes extras, extra key) noexcept;
/// Which of them are there, one bit each: asking has_kind() takes no look at the extras.
std::uint32_t kinds_of(const_bytes extras) noexcept;
constexpr bool has_kind(std::uint32_t kinds, extra key) noexcept {
    return (kinds >> static_cast<unsigned>(key) & 1) != 0;
}

/// The fixed part of a request or one-way call.
struct request_header {
    message_kind kind = message_kind::request;
    std::uint8_t flags = 0;
    std::uint16_t provider = 0;
    std::uint32_t microseconds = 0;
    std::uint64_t procedure = 0;
};

/// Last part of a `checked` message; covers all bytes before it.
std::array<std::byte, checksum_bytes> checksum_of(std::span<const const_bytes> pieces) noexcept;

void write_request(std::byte* to, const request_header& header) noexcept;
/// `kind`: reply or item. An unknown code is sent as handler_failed, with the code inside.
void write_reply(std::byte* to, status what, std::uint8_t flags = 0,
                 message_kind kind = message_kind::reply) noexcept;
void write_cancel(std::byte* to) noexcept;
void write_verdict(std::byte* to, status what, std::uint64_t procedure,
                   std::uint8_t flags = 0) noexcept;
void write_credit(std::byte* to, std::uint32_t items) noexcept;
void write_release(std::byte* to) noexcept;
void write_mail(std::byte* to, std::uint8_t flags) noexcept;

/// Appends to extras under construction, which go between header and names. Starts empty; always a
/// multiple of 8 bytes.
/// Failure: throws error{too_large} past limits::max_extras_bytes, error{no_memory}.
void add_extra(std::vector<std::byte>& extras, extra key, const_bytes value);

void add_trace(std::vector<std::byte>& extras, const trace_context& trace);
void add_metadata(std::vector<std::byte>& extras, std::string_view key, std::string_view value);
/// Precondition: `value` has the right length, as checked by parse().
trace_context read_trace(const_bytes value) noexcept;
/// Null if there is no metadata of that key.
std::optional<std::string_view> find_metadata(const_bytes extras, std::string_view key) noexcept;

/// Names of a request, between header and arguments. A multiple of 8 bytes.
std::string names_text(std::string_view name, std::string_view signature);

/// Wire id of a name and signature; never 0.
std::uint64_t procedure_id(std::string_view name, std::string_view signature) noexcept;

/// Time left, as encoded: rounded up, at least 1; 0 for more than an hour or no limit.
std::uint32_t to_microseconds(clock::duration left) noexcept;

inline std::string_view as_text(const_bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline const_bytes as_bytes(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace amalgam::detail
