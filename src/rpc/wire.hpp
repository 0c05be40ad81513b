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

/// The messages of rpc, byte by byte: docs/wire/rpc.md. The message's tag is the call's id.
namespace amalgam::detail {

enum class message_kind : std::uint8_t {
    request = 1,  ///< Wants a reply with the same tag.
    one_way = 2,  ///< Wants none.
    reply = 3,    ///< How the request of that tag ended.
    cancel = 4,   ///< Nobody waits for the reply of that tag any more.
    verdict = 5,  ///< What became of the names that a one-way call carried.
    item = 6,     ///< One value of a streamed answer, before its reply.
    credit = 7,   ///< So many more items of that tag may come.
    release = 8   ///< Loans that are not used any more.
};

constexpr bool is_request(message_kind kind) noexcept {
    return kind == message_kind::request || kind == message_kind::one_way;
}

/// What else is said of a message, in its header.
namespace wire_flag {
inline constexpr std::uint8_t named = 1;    ///< Request, one-way: name and signature follow.
inline constexpr std::uint8_t xdr = 2;      ///< The values are in XDR.
inline constexpr std::uint8_t checked = 4;  ///< The last four bytes are a checksum.
inline constexpr std::uint8_t extras = 8;   ///< Extras follow.
inline constexpr std::uint8_t urgent = 16;  ///< Request, one-way: goes before others.
}  // namespace wire_flag

/// What extras can be, by key. A reader skips keys that it does not know.
enum class extra : std::uint16_t {
    trace = 1,      ///< 32 bytes: a W3C trace context.
    metadata = 2,   ///< Once for each: the length of its key (2), the key, the value.
    loans = 3,      ///< Ids, 8 bytes each: what the message lends; see `release`.
    elsewhere = 4,  ///< 40 bytes: the key of the memory where the values are.
    window = 5,     ///< 8 bytes: a streamed answer is wanted, and how many items may come at first.
    checksum = 6    ///< 4 bytes: of the values that are elsewhere.
};

inline constexpr std::size_t request_bytes = 16;
inline constexpr std::size_t reply_bytes = 8;
inline constexpr std::size_t cancel_bytes = 8;
inline constexpr std::size_t verdict_bytes = 16;
inline constexpr std::size_t credit_bytes = 8;
inline constexpr std::size_t release_bytes = 8;  ///< Without the ids.
/// Longer sentences are cut.
inline constexpr std::size_t max_sentence_bytes = 4096;
inline constexpr std::size_t max_name_bytes = 255;
inline constexpr std::size_t max_signature_bytes = 16384;
inline constexpr std::size_t max_extras_bytes = 65536;
inline constexpr std::size_t checksum_bytes = 4;

/// A message taken apart. Views borrow from it.
struct parsed_message {
    parsed_message() noexcept {}  // Not a memset, which takes longer to start than the rest to run.

    message_kind kind = message_kind::request;
    std::uint8_t flags = 0;
    std::uint16_t provider = 0;      ///< Request, one-way.
    std::uint32_t microseconds = 0;  ///< Request, one-way: left until the deadline; 0: none.
    std::uint32_t items = 0;         ///< Credit.
    std::uint64_t procedure = 0;     ///< Request, one-way, verdict.
    std::string_view name;           ///< As long as `flags` has `named`.
    std::string_view signature;
    const_bytes extras;    ///< Well-formed, for find_extra(); empty: none.
    status what;           ///< Reply, item, verdict.
    const_bytes body;      ///< Arguments or result; what failed as text; ids of a release.
    bool corrupt = false;  ///< Refused because of its checksum; only `kind` can be trusted.

    bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
    bool named() const noexcept { return has(wire_flag::named); }
    encoding values_as() const noexcept {
        return has(wire_flag::xdr) ? encoding::xdr : encoding::native;
    }
};

/// Null when `bytes` are a message; else what is wrong with them, a literal.
const char* parse(const_bytes bytes, parsed_message& into) noexcept;

/// The value under `key`, of the size that it must have; empty when it is not there.
const_bytes find_extra(const_bytes extras, extra key) noexcept;

/// The fixed part of a request or one-way call.
struct request_header {
    message_kind kind = message_kind::request;
    std::uint8_t flags = 0;
    std::uint16_t provider = 0;
    std::uint32_t microseconds = 0;
    std::uint64_t procedure = 0;
};

/// What goes last in a message that is `checked`: of all of its bytes before.
std::array<std::byte, checksum_bytes> checksum_of(std::span<const const_bytes> pieces) noexcept;

void write_request(std::byte* to, const request_header& header) noexcept;
/// `kind`: reply or item. A code that is none of ours goes as handler_failed, with it inside.
void write_reply(std::byte* to, status what, std::uint8_t flags = 0,
                 message_kind kind = message_kind::reply) noexcept;
void write_cancel(std::byte* to) noexcept;
void write_verdict(std::byte* to, status what, std::uint64_t procedure,
                   std::uint8_t flags = 0) noexcept;
void write_credit(std::byte* to, std::uint32_t items) noexcept;
void write_release(std::byte* to) noexcept;

/// Adds to extras under construction, which go between a header and the names. Empty at first;
/// always a multiple of 8 bytes.
/// Failure: throws error{too_large} past max_extras_bytes, error{no_memory}.
void add_extra(std::vector<std::byte>& extras, extra key, const_bytes value);

void add_trace(std::vector<std::byte>& extras, const trace_context& trace);
void add_metadata(std::vector<std::byte>& extras, std::string_view key, std::string_view value);
/// Precondition: `value` is of the right length, as parse() has checked.
trace_context read_trace(const_bytes value) noexcept;
/// Null: no metadata of that key.
std::optional<std::string_view> find_metadata(const_bytes extras, std::string_view key) noexcept;

/// What a named request carries between header and arguments. A multiple of 8 bytes.
std::string names_text(std::string_view name, std::string_view signature);

/// The id that a name and signature travel by; never 0.
std::uint64_t procedure_id(std::string_view name, std::string_view signature) noexcept;

/// Time left as it travels: rounded up, at least 1; 0 for more than an hour or no limit.
std::uint32_t to_microseconds(clock::duration left) noexcept;

inline std::string_view as_text(const_bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline const_bytes as_bytes(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace amalgam::detail
