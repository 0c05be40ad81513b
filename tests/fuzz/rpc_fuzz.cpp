#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <amalgam/rpc/archive.hpp>

#include "fuzz/fuzz.hpp"
#include "rpc/wire.hpp"

// What rpc reads from bytes of strangers: the message, and the values in it.
namespace amalgam::fuzz {

namespace {

struct tree {
    std::uint16_t value = 0;
    std::string name;
    std::vector<tree> children;
    std::unique_ptr<tree> next;
    template <typename Archive>
    void serialize(Archive& a) {
        a(value, name, children, next);
    }
};

/// Whatever can be read can be written, and reads the same again.
template <typename T>
void read_as(const_bytes input) {
    archive_reader reader(input);
    T value{};
    reader(value);
    if (!reader.ok()) {
        require(reader.remaining() == 0, "after a fault nothing is left to read");
        return;
    }
    body first;
    archive_writer into_first(first);
    into_first(value);
    require(first.size() <= 4 * input.size() + 64, "a value is not much longer than what it is");
    archive_reader again(first.bytes());
    T same{};
    again(same);
    require(again.ok() && again.remaining() == 0, "what was written can be read");
    body second;
    archive_writer into_second(second);
    into_second(same);
    require(std::ranges::equal(first.bytes(), second.bytes()), "and is the same value");
}

void read_message(const_bytes input) {
    detail::parsed_message parsed;
    if (detail::parse(input, parsed) != nullptr) return;
    const bool inside = parsed.body.empty() ||
                        (parsed.body.data() >= input.data() &&
                         parsed.body.data() + parsed.body.size() == input.data() + input.size());
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
            detail::write_verdict(whole, parsed.what, parsed.procedure);
            bytes = detail::verdict_bytes;
        }
        require(std::memcmp(whole, input.data(), bytes) == 0, "and so can any other");
    }
    if (!parsed.body.empty()) read_as<std::vector<std::string>>(parsed.body);
}

}  // namespace

void run_one(const_bytes input) {
    read_message(input);
    read_as<std::map<std::uint32_t, std::vector<double>>>(input);
    read_as<std::vector<std::variant<bool, std::string, std::optional<std::int64_t>>>>(input);
    read_as<std::pair<std::string, std::array<std::uint16_t, 3>>>(input);
    read_as<tree>(input);
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
        tree root;
        root.name = "root";
        root.children.resize(2);
        root.next = std::make_unique<tree>();
        writer(root);
        keep(into.bytes());
        into.clear();
        writer(std::map<std::uint32_t, std::vector<double>>{{1, {2.5}}, {3, {}}});
        keep(into.bytes());
        into.clear();
        using any = std::variant<bool, std::string, std::optional<std::int64_t>>;
        writer(std::vector<any>{any{true}, any{"text"}, any{std::optional<std::int64_t>{4}}});
        keep(into.bytes());
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
