#include "rpc/wire/wire.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <amalgam/core/crc32c.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/fabric/region.hpp>

#include "rpc/limits.hpp"

namespace amalgam::detail {

namespace {

constexpr std::size_t trace_bytes = 32;
constexpr std::size_t extras_head_bytes = 8;
constexpr std::size_t extra_head_bytes = 8;

constexpr std::size_t round_up_8(std::size_t bytes) noexcept {
    return (bytes + 7) & ~std::size_t{7};
}

// Calls `visit(key, value)` until it returns true; returns false if malformed.
template <typename Visit>
bool walk_extras(const_bytes extras, Visit visit) noexcept {
    for (const_bytes left = extras.subspan(extras_head_bytes); !left.empty();) {
        if (left.size() < extra_head_bytes) return false;
        const std::size_t bytes = load_le<std::uint32_t>(left.data() + 4);
        if (load_le<std::uint16_t>(left.data() + 2) != 0) return false;
        if (bytes > left.size() - extra_head_bytes) return false;
        const const_bytes value = left.subspan(extra_head_bytes, bytes);
        if (visit(load_le<extra>(left.data()), value)) return true;
        left = left.subspan(extra_head_bytes + round_up_8(bytes));  // Extras are padded to 8 bytes.
    }
    return true;
}

constexpr bool is_size_right(extra key, std::size_t bytes) noexcept {
    switch (key) {
        case extra::trace:
            return bytes == trace_bytes;
        case extra::loans:
            return bytes % 8 == 0;
        case extra::rendezvous:
            return bytes == remote_key::wire_bytes;
        case extra::checksum:
            return bytes == checksum_bytes;
        case extra::window:
            return bytes == 8;
        default:
            return true;
    }
}

const char* parse_extras(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < extras_head_bytes) return "truncated extras";
    const std::size_t all = load_le<std::uint32_t>(bytes.data());
    if (load_le<std::uint32_t>(bytes.data() + 4) != 0) return "a reserved field is nonzero";
    if (all < extras_head_bytes || all % 8 != 0 || all > limits::max_extras_bytes) {
        return "invalid length of extras";
    }
    if (bytes.size() < all) return "truncated extras";
    into.extras = bytes.first(all);
    into.body = bytes.subspan(all);
    bool sizes_are_right = true;
    const auto look = [&](extra key, const_bytes value) {
        sizes_are_right &= is_size_right(key, value.size());
        return false;
    };
    if (!walk_extras(into.extras, look)) return "malformed extras";
    return sizes_are_right ? nullptr : "an extra has the wrong length";
}

const char* parse_names(const_bytes bytes, parsed_message& into) noexcept {
    constexpr std::size_t lengths = 8;
    if (bytes.size() < lengths) return "truncated names";
    const std::size_t name = load_le<std::uint16_t>(bytes.data());
    const std::size_t signature = load_le<std::uint16_t>(bytes.data() + 2);
    if (load_le<std::uint32_t>(bytes.data() + 4) != 0) return "a reserved field is nonzero";
    if (name == 0 || name > limits::max_name_bytes) return "invalid length of the name";
    if (signature > limits::max_signature_bytes) return "the signature is too long";
    const std::size_t all = round_up_8(lengths + name + signature);
    if (bytes.size() < all) return "truncated names";
    into.name = as_text(bytes.subspan(lengths, name));
    into.signature = as_text(bytes.subspan(lengths + name, signature));
    into.body = bytes.subspan(all);
    return nullptr;
}

// Checked before anything else: of a damaged message only this flag must be intact.
const char* take_checksum(const_bytes& bytes, parsed_message& into) noexcept {
    if (bytes.size() >= checksum_bytes) {
        const const_bytes rest = bytes.first(bytes.size() - checksum_bytes);
        const bool good = load_le<std::uint32_t>(rest.data() + rest.size()) == crc32c(rest);
        bytes = rest;
        if (good) return nullptr;
    }
    into.corrupt = true;
    into.flags = wire_flag::checked;
    return "corrupted in transit: checksum mismatch";
}

// Rare parts are parsed out of line, since every message passes here.
[[gnu::noinline]] const char* parse_behind_header(parsed_message& into) noexcept {
    if (into.has(wire_flag::extras)) {
        if (const char* wrong = parse_extras(into.body, into)) return wrong;
    }
    return into.named() ? parse_names(into.body, into) : nullptr;
}

/// A request whose flags are in `into`, already verified if it has a checksum.
const char* read_request(const_bytes bytes, parsed_message& into) noexcept {
    using namespace wire_flag;
    if ((into.flags & ~(named | xdr | checked | extras | urgent)) != 0) {
        return "a request has unknown flags";
    }
    into.provider = load_le<std::uint16_t>(bytes.data() + 2);
    into.microseconds = load_le<std::uint32_t>(bytes.data() + 4);
    into.procedure = load_le<std::uint64_t>(bytes.data() + 8);
    into.body = bytes.subspan(request_bytes);
    return (into.flags & (extras | named)) == 0 ? nullptr : parse_behind_header(into);
}

constexpr const char* request_too_short = "a request is shorter than its header";

[[gnu::noinline]] const char* parse_checked_request(const_bytes bytes,
                                                    parsed_message& into) noexcept {
    if (const char* wrong = take_checksum(bytes, into)) return wrong;
    return bytes.size() < request_bytes ? request_too_short : read_request(bytes, into);
}

const char* parse_request(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < request_bytes) return request_too_short;
    into.flags = load_le<std::uint8_t>(bytes.data() + 1);
    return into.has(wire_flag::checked) ? parse_checked_request(bytes, into)
                                        : read_request(bytes, into);
}

[[gnu::noinline]] const char* parse_behind_status(parsed_message& into) noexcept {
    if (!into.what.ok() && name(into.what.code) == "unknown") {
        return "a reply has an unknown status";
    }
    return into.has(wire_flag::extras) ? parse_extras(into.body, into) : nullptr;
}

/// Like read_request(), for a header of that size.
template <std::size_t Header>
const char* read_outcome(const_bytes bytes, parsed_message& into) noexcept {
    using namespace wire_flag;
    const auto code = load_le<errc>(bytes.data() + 1);
    if (load_le<std::uint8_t>(bytes.data() + 3) != 0) return "a reserved field is nonzero";
    if ((into.flags & ~(xdr | checked | extras)) != 0) {
        return "a reply has unknown flags";
    }
    into.what = {code, load_le<std::int32_t>(bytes.data() + 4)};
    if constexpr (Header == verdict_bytes)
        into.procedure = load_le<std::uint64_t>(bytes.data() + 8);
    into.body = bytes.subspan(Header);
    return code == errc::ok && !into.has(extras) ? nullptr : parse_behind_status(into);
}

constexpr const char* reply_too_short = "a reply is shorter than its header";

template <std::size_t Header>
[[gnu::noinline]] const char* parse_checked_outcome(const_bytes bytes,
                                                    parsed_message& into) noexcept {
    if (const char* wrong = take_checksum(bytes, into)) return wrong;
    return bytes.size() < Header ? reply_too_short : read_outcome<Header>(bytes, into);
}

template <std::size_t Header>
const char* parse_outcome(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < Header) return reply_too_short;
    into.flags = load_le<std::uint8_t>(bytes.data() + 2);
    return into.has(wire_flag::checked) ? parse_checked_outcome<Header>(bytes, into)
                                        : read_outcome<Header>(bytes, into);
}

// Messages whose first byte and three zeros are followed by just a 32-bit number.
const char* parse_short(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < cancel_bytes) return "shorter than its header";
    if (load_le<std::uint32_t>(bytes.data()) != first_byte(into.kind)) {
        return "a reserved field is nonzero";
    }
    into.items = load_le<std::uint32_t>(bytes.data() + 4);
    into.body = bytes.subspan(cancel_bytes);
    if (into.kind != message_kind::credit && into.items != 0) return "a reserved field is nonzero";
    if (into.kind == message_kind::release ? into.body.size() % 8 != 0 : !into.body.empty()) {
        return "wrong length";
    }
    return nullptr;
}

const char* parse_mail(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.size() < mail_bytes) return "shorter than its header";
    const auto head = load_le<std::uint64_t>(bytes.data());
    into.flags = static_cast<std::uint8_t>(head >> 8);
    if (head >> 16 != 0 || (into.flags & ~wire_flag::checked) != 0) {
        return "a reserved field is nonzero";
    }
    if (into.has(wire_flag::checked)) {
        if (const char* wrong = take_checksum(bytes, into)) return wrong;
        if (bytes.size() < mail_bytes) return "shorter than its header";
    }
    into.body = bytes.subspan(mail_bytes);
    return nullptr;
}

[[gnu::noinline]] const char* parse_other(const_bytes bytes, parsed_message& into) noexcept {
    switch (into.kind) {
        case message_kind::verdict:
            return parse_outcome<verdict_bytes>(bytes, into);
        case message_kind::cancel:
        case message_kind::credit:
        case message_kind::release:
            return parse_short(bytes, into);
        case message_kind::mail:
            return parse_mail(bytes, into);
        default:
            return "unknown message kind";
    }
}

void write_short(std::byte* to, message_kind kind, std::uint32_t number) noexcept {
    store_le(to, std::uint32_t{first_byte(kind)});
    store_le(to + 4, number);
}

}  // namespace

const char* parse(const_bytes bytes, parsed_message& into) noexcept {
    if (bytes.empty()) return "empty message";
    const auto first = load_le<std::uint8_t>(bytes.data());
    into.kind = static_cast<message_kind>(first & 15);  // The same in every version.
    if (first >> 4 != wire_version) return "another protocol version";
    if (is_request(into.kind)) return parse_request(bytes, into);
    if (into.kind == message_kind::reply || into.kind == message_kind::item)
        return parse_outcome<reply_bytes>(bytes, into);
    return parse_other(bytes, into);
}

const_bytes find_extra(const_bytes extras, extra key) noexcept {
    const_bytes found;
    if (extras.empty()) return found;
    walk_extras(extras, [&](extra each, const_bytes value) {
        // Checked again: the sender may still be able to write to the message's memory.
        if (each != key || !is_size_right(key, value.size())) return false;
        found = value;
        return true;
    });
    return found;
}

std::uint32_t kinds_of(const_bytes extras) noexcept {
    std::uint32_t kinds = 0;
    if (extras.empty()) return kinds;
    walk_extras(extras, [&](extra each, const_bytes) {
        const auto number = static_cast<unsigned>(each);
        if (number < 32) kinds |= std::uint32_t{1} << number;
        return false;
    });
    return kinds;
}

std::array<std::byte, checksum_bytes> checksum_of(std::span<const const_bytes> pieces) noexcept {
    std::uint32_t sum = 0;
    for (const const_bytes& each : pieces)
        sum = crc32c(each, sum);
    std::array<std::byte, checksum_bytes> bytes;
    store_le(bytes.data(), sum);
    return bytes;
}

void write_request(std::byte* to, const request_header& header) noexcept {
    // Whole words: a later wide load of narrower stores would stall.
    store_le(to, std::uint64_t{first_byte(header.kind)} | std::uint64_t{header.flags} << 8 |
                     std::uint64_t{header.provider} << 16 |
                     std::uint64_t{header.microseconds} << 32);
    store_le(to + 8, header.procedure);
}

void write_reply(std::byte* to, status what, std::uint8_t flags, message_kind kind) noexcept {
    static_assert(sizeof what.code == 1);
    // An unknown code would make the answer malformed.
    if (!what.ok() && name(what.code) == "unknown")
        what = {errc::handler_failed, static_cast<std::int32_t>(what.code)};
    store_le(to, std::uint64_t{first_byte(kind)} | static_cast<std::uint64_t>(what.code) << 8 |
                     std::uint64_t{flags} << 16 |
                     std::uint64_t{static_cast<std::uint32_t>(what.native)} << 32);
}

void write_cancel(std::byte* to) noexcept {
    write_short(to, message_kind::cancel, 0);
}

void write_verdict(std::byte* to, status what, std::uint64_t procedure,
                   std::uint8_t flags) noexcept {
    write_reply(to, what, flags, message_kind::verdict);
    store_le(to + 8, procedure);
}

void write_credit(std::byte* to, std::uint32_t items) noexcept {
    write_short(to, message_kind::credit, items);
}

void write_release(std::byte* to) noexcept {
    write_short(to, message_kind::release, 0);
}

void write_mail(std::byte* to, std::uint8_t flags) noexcept {
    store_le(to, std::uint64_t{first_byte(message_kind::mail)} | std::uint64_t{flags} << 8);
}

void add_extra(std::vector<std::byte>& extras, extra key, const_bytes value) {
    const std::size_t start = std::max(extras.size(), extras_head_bytes);
    const std::size_t end = start + extra_head_bytes + round_up_8(value.size());
    if (end > limits::max_extras_bytes) {
        throw error(errc::too_large,
                    "the call's extras, including borrowed memory in its arguments, exceed 64 KiB: "
                    "attach less, or split bulk descriptors over several calls");
    }
    extras.resize(end);
    store_le(extras.data(), static_cast<std::uint32_t>(end));
    std::byte* const at = extras.data() + start;
    store_le(at, key);
    store_le(at + 4, static_cast<std::uint32_t>(value.size()));
    if (!value.empty()) std::memcpy(at + extra_head_bytes, value.data(), value.size());
}

void add_trace(std::vector<std::byte>& extras, const trace_context& trace) {
    std::byte bytes[trace_bytes] = {};
    std::memcpy(bytes, trace.trace_id.data(), trace.trace_id.size());
    std::memcpy(bytes + 16, trace.span_id.data(), trace.span_id.size());
    bytes[24] = trace.sampled ? std::byte{1} : std::byte{0};
    add_extra(extras, extra::trace, bytes);
}

trace_context read_trace(const_bytes value) noexcept {
    trace_context trace;
    std::memcpy(trace.trace_id.data(), value.data(), trace.trace_id.size());
    std::memcpy(trace.span_id.data(), value.data() + 16, trace.span_id.size());
    trace.sampled = (value[24] & std::byte{1}) != std::byte{0};
    return trace;
}

void add_metadata(std::vector<std::byte>& extras, std::string_view key, std::string_view value) {
    std::string entry(2, '\0');
    store_le(entry.data(), static_cast<std::uint16_t>(key.size()));
    entry += key;
    entry += value;
    add_extra(extras, extra::metadata, as_bytes(entry));
}

std::optional<std::string_view> find_metadata(const_bytes extras, std::string_view key) noexcept {
    std::optional<std::string_view> found;
    if (extras.empty()) return found;
    walk_extras(extras, [&](extra each, const_bytes value) {
        if (each != extra::metadata || value.size() < 2) return false;
        const std::size_t length = load_le<std::uint16_t>(value.data());
        const std::string_view text = as_text(value.subspan(2));
        if (text.substr(0, length) != key || length > text.size()) return false;
        found = text.substr(length);
        return true;
    });
    return found;
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
