#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>

/// The messages of rpc, byte by byte: docs/wire/rpc.md. The message's tag is the call's id.
namespace amalgam::detail {

enum class message_kind : std::uint8_t {
    request = 1,  ///< Wants a reply with the same tag.
    one_way = 2,  ///< Wants none.
    reply = 3,    ///< How the request of that tag ended.
    cancel = 4,   ///< Nobody waits for the reply of that tag any more.
    verdict = 5   ///< What became of the names that a one-way call carried.
};

inline constexpr std::size_t request_bytes = 16;
inline constexpr std::size_t reply_bytes = 8;
inline constexpr std::size_t cancel_bytes = 8;
inline constexpr std::size_t verdict_bytes = 16;
/// Longer sentences are cut.
inline constexpr std::size_t max_sentence_bytes = 4096;
inline constexpr std::size_t max_name_bytes = 255;
inline constexpr std::size_t max_signature_bytes = 16384;

/// A message taken apart. Views borrow from it.
struct parsed_message {
    message_kind kind = message_kind::request;
    bool named = false;              ///< Request, one-way: name and signature are there.
    std::uint32_t microseconds = 0;  ///< Request, one-way: left until the deadline; 0: none.
    std::uint64_t procedure = 0;     ///< Request, one-way, verdict.
    std::string_view name;
    std::string_view signature;
    status what;       ///< Reply, verdict.
    const_bytes body;  ///< Arguments or result; what failed as text.
};

/// Null when `bytes` are a message; else what is wrong with them, a literal.
const char* parse(const_bytes bytes, parsed_message& into) noexcept;

void write_request(std::byte* to, message_kind kind, bool named, std::uint32_t microseconds,
                   std::uint64_t procedure) noexcept;
void write_reply(std::byte* to, status what) noexcept;
void write_cancel(std::byte* to) noexcept;
void write_verdict(std::byte* to, status what, std::uint64_t procedure) noexcept;

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
