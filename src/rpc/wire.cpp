#include "rpc/wire.hpp"

#include <cstring>
#include <limits>

#include <amalgam/core/hash.hpp>

namespace amalgam::detail {

namespace {

constexpr std::uint8_t version = 1;
constexpr std::uint8_t named_flag = 1;

// Shared by all kinds: byte 0 holds version and kind, byte 1 flags or a status code.
std::uint8_t first_byte(message_kind kind) noexcept {
    return static_cast<std::uint8_t>(version << 4 | static_cast<std::uint8_t>(kind));
}

constexpr std::size_t round_up_8(std::size_t bytes) noexcept {
    return (bytes + 7) & ~std::size_t{7};
}

const char* parse_names(const_bytes bytes, parsed_message& into) noexcept {
    constexpr std::size_t lengths = 8;
    if (bytes.size() < lengths) return "its names are cut off";
    const std::size_t name = load_le<std::uint16_t>(bytes.data());
    const std::size_t signature = load_le<std::uint16_t>(bytes.data() + 2);
    if (load_le<std::uint32_t>(bytes.data() + 4) != 0) return "a reserved field is not zero";
    if (name == 0 || name > max_name_bytes) return "its name has no valid length";
    if (signature > max_signature_bytes) return "its signature is too long";
    const std::size_t all = round_up_8(lengths + name + signature);
    if (bytes.size() < all) return "its names are cut off";
    into.name = as_text(bytes.subspan(lengths, name));
    into.signature = as_text(bytes.subspan(lengths + name, signature));
    into.body = bytes.subspan(all);
    return nullptr;
}

const char* parse_request(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < request_bytes) return "a request is shorter than its header";
    const auto flags = load_le<std::uint8_t>(bytes.data() + 1);
    if ((flags & ~named_flag) != 0) return "a request has flags of a later version";
    if (load_le<std::uint16_t>(bytes.data() + 2) != 0) return "a reserved field is not zero";
    into.named = (flags & named_flag) != 0;
    into.microseconds = load_le<std::uint32_t>(bytes.data() + 4);
    into.procedure = load_le<std::uint64_t>(bytes.data() + 8);
    into.body = bytes.subspan(request_bytes);
    return into.named ? parse_names(into.body, into) : nullptr;
}

const char* parse_outcome(const_bytes bytes, std::size_t header, parsed_message& into) noexcept {
    if (bytes.size() < header) return "a reply is shorter than its header";
    const auto code = load_le<errc>(bytes.data() + 1);
    if (load_le<std::uint16_t>(bytes.data() + 2) != 0) return "a reserved field is not zero";
    into.what = {code, load_le<std::int32_t>(bytes.data() + 4)};
    if (header == verdict_bytes) into.procedure = load_le<std::uint64_t>(bytes.data() + 8);
    into.body = bytes.subspan(header);
    const bool known = code == errc::ok || name(code) != "unknown";
    return known ? nullptr : "a reply has a status of a later version";
}

const char* parse_cancel(const_bytes bytes) noexcept {
    if (bytes.size() != cancel_bytes) return "a cancel has the wrong length";
    const bool plain = load_le<std::uint64_t>(bytes.data()) == first_byte(message_kind::cancel);
    return plain ? nullptr : "a reserved field is not zero";
}

}  // namespace

const char* parse(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.empty()) return "it is empty";
    const auto first = load_le<std::uint8_t>(bytes.data());
    if (first >> 4 != version) return "it is of another version of the protocol";
    into.kind = static_cast<message_kind>(first & 15);
    switch (into.kind) {
        case message_kind::request:
        case message_kind::one_way:
            return parse_request(bytes, into);
        case message_kind::reply:
            return parse_outcome(bytes, reply_bytes, into);
        case message_kind::verdict:
            return parse_outcome(bytes, verdict_bytes, into);
        case message_kind::cancel:
            return parse_cancel(bytes);
    }
    return "it is of a kind that this version does not know";
}

void write_request(std::byte* to, message_kind kind, bool named, std::uint32_t microseconds,
                   std::uint64_t procedure) noexcept {
    store_le(to, first_byte(kind));
    store_le(to + 1, named ? named_flag : std::uint8_t{0});
    store_le(to + 2, std::uint16_t{0});
    store_le(to + 4, microseconds);
    store_le(to + 8, procedure);
}

void write_reply(std::byte* to, status what) noexcept {
    store_le(to, first_byte(message_kind::reply));
    store_le(to + 1, what.code);
    store_le(to + 2, std::uint16_t{0});
    store_le(to + 4, what.native);
}

void write_cancel(std::byte* to) noexcept {
    std::memset(to, 0, cancel_bytes);
    store_le(to, first_byte(message_kind::cancel));
}

void write_verdict(std::byte* to, status what, std::uint64_t procedure) noexcept {
    write_reply(to, what);
    store_le(to, first_byte(message_kind::verdict));
    store_le(to + 8, procedure);
}

std::string names_text(std::string_view name, std::string_view signature) {
    std::string text(8, '\0');
    store_le(text.data(), static_cast<std::uint16_t>(name.size()));
    store_le(text.data() + 2, static_cast<std::uint16_t>(signature.size()));
    text += name;
    text += signature;
    text.resize(round_up_8(text.size()), '\0');
    return text;
}

std::uint64_t procedure_id(std::string_view name, std::string_view signature) noexcept {
    const std::uint64_t id = mix(fnv1a(signature, fnv1a(std::string_view("\n", 1), fnv1a(name))));
    return id != 0 ? id : 1;
}

std::uint32_t to_microseconds(clock::duration left) noexcept {
    if (left <= clock::duration::zero()) return 1;
    if (left > std::chrono::hours(1)) return 0;
    return static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::microseconds>(left).count());
}

}  // namespace amalgam::detail
