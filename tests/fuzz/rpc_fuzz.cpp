#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <amalgam/rpc/archive.hpp>

#include "fuzz/fuzz.hpp"
#include "rpc/wire/wire.hpp"

// Messages of rpc from strangers; values_fuzz.cpp covers values.
namespace amalgam::fuzz {

namespace {

void read_message(const_bytes input) {
    detail::parsed_message parsed;
    if (detail::parse(input, parsed) != nullptr) return;
    const std::size_t behind =
        parsed.has(detail::wire_flag::checked) ? detail::checksum_bytes : std::size_t{0};
    const bool inside = parsed.body.empty() || (parsed.body.data() >= input.data() &&
                                                parsed.body.data() + parsed.body.size() + behind ==
                                                    input.data() + input.size());
    require(inside || parsed.kind == detail::message_kind::cancel, "the body is the end");
    if (parsed.kind == detail::message_kind::request ||
        parsed.kind == detail::message_kind::one_way) {
        std::byte header[detail::request_bytes];
        detail::write_request(header, {parsed.kind, parsed.flags, parsed.provider,
                                       parsed.microseconds, parsed.procedure});
        require(std::memcmp(header, input.data(), sizeof header) == 0,
                "a header that is read can be written");
        require(parsed.named() != parsed.name.empty(), "a named request has a name");
    } else {
        std::byte whole[detail::verdict_bytes];
        std::size_t bytes = detail::cancel_bytes;
        if (parsed.kind == detail::message_kind::cancel) {
            detail::write_cancel(whole);
        } else if (parsed.kind == detail::message_kind::credit) {
            detail::write_credit(whole, parsed.items);
        } else if (parsed.kind == detail::message_kind::release) {
            detail::write_release(whole);
        } else if (parsed.kind != detail::message_kind::verdict) {
            detail::write_reply(whole, parsed.what, parsed.flags, parsed.kind);
            bytes = detail::reply_bytes;
        } else {
            detail::write_verdict(whole, parsed.what, parsed.procedure, parsed.flags);
            bytes = detail::verdict_bytes;
        }
        require(std::memcmp(whole, input.data(), bytes) == 0, "and so can any other");
    }
}

/// With a correct checksum the message means the same; with a damaged one it is refused.
void add_checksum(const_bytes input) {
    detail::parsed_message plain;
    if (detail::parse(input, plain) != nullptr || plain.has(detail::wire_flag::checked)) return;
    std::size_t flags = 2;
    switch (plain.kind) {
        case detail::message_kind::request:
        case detail::message_kind::one_way:
            flags = 1;
            break;
        case detail::message_kind::reply:
        case detail::message_kind::item:
        case detail::message_kind::verdict:
            break;
        default:
            return;
    }
    std::vector<std::byte> message(input.begin(), input.end());
    message[flags] |= std::byte{detail::wire_flag::checked};
    const const_bytes piece(message);
    const auto sum = detail::checksum_of({&piece, 1});
    message.insert(message.end(), sum.begin(), sum.end());
    detail::parsed_message checked;
    require(detail::parse(message, checked) == nullptr, "a checksum makes no message worse");
    require(std::ranges::equal(checked.body, plain.body), "and is no part of its body");
    message.back() ^= std::byte{1};
    detail::parsed_message damaged;
    require(detail::parse(message, damaged) != nullptr && damaged.corrupt, "damage is seen");
}

}  // namespace

void run_one(const_bytes input) {
    read_message(input);
    add_checksum(input);
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> made;
        const auto keep = [&made](const_bytes bytes) {
            made.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        };
        std::byte header[detail::request_bytes];
        body into;
        archive_writer writer(into);
        detail::write_request(
            header, {.flags = detail::wire_flag::named, .microseconds = 5000, .procedure = 99});
        writer.raw(header, sizeof header);
        const std::string names = detail::names_text("sum", "i32(i32,i32)");
        writer.raw(names.data(), names.size());
        writer(std::vector<std::string>{"one", "two"});
        keep(into.bytes());
        detail::write_reply(header, {errc::handler_failed, 3});
        keep(const_bytes(header, detail::reply_bytes));
        detail::write_verdict(header, {errc::mismatch}, 7);
        keep(header);
        into.clear();
        std::vector<std::byte> extras;
        detail::add_metadata(extras, "key", "value");
        detail::add_trace(extras, {});
        detail::write_request(header, {.kind = detail::message_kind::one_way,
                                       .flags = detail::wire_flag::extras,
                                       .procedure = 5});
        writer.raw(header, sizeof header);
        writer.raw(extras.data(), extras.size());
        writer.raw("body", 4);
        keep(into.bytes());
        into.clear();
        detail::write_reply(header, {}, detail::wire_flag::checked | detail::wire_flag::xdr);
        writer.raw(header, detail::reply_bytes);
        const const_bytes piece = into.bytes();
        const auto sum = detail::checksum_of({&piece, 1});
        writer.raw(sum.data(), sum.size());
        keep(into.bytes());
        detail::write_credit(header, 9);
        keep(const_bytes(header, detail::credit_bytes));
        detail::write_release(header);
        keep(header);
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
