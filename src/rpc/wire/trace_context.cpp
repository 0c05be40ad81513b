#include <algorithm>
#include <span>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/trace_context.hpp>

namespace amalgam {

namespace {

constexpr char digits[] = "0123456789abcdef";

bool all_zero(std::span<const std::byte> id) noexcept {
    return std::all_of(id.begin(), id.end(), [](std::byte each) { return each == std::byte{0}; });
}

void append_hex(std::string& to, std::span<const std::byte> from) {
    for (const std::byte each : from) {
        to += digits[static_cast<unsigned>(each) >> 4];
        to += digits[static_cast<unsigned>(each) & 15];
    }
}

/// -1 unless it is a lower-case digit, as the W3C requires.
int digit(char c) noexcept {
    const char* const at = std::find(digits, digits + 16, c);
    return at == digits + 16 ? -1 : static_cast<int>(at - digits);
}

bool read_hex(std::string_view from, std::span<std::byte> to) noexcept {
    for (std::size_t i = 0; i < to.size(); ++i) {
        const int high = digit(from[2 * i]);
        const int low = digit(from[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        to[i] = static_cast<std::byte>(high << 4 | low);
    }
    return true;
}

}  // namespace

trace_context trace_context::start() noexcept {
    trace_context fresh;
    store_le(fresh.trace_id.data(), random_nonzero_u64());
    store_le(fresh.trace_id.data() + 8, random_u64());
    store_le(fresh.span_id.data(), random_nonzero_u64());
    return fresh;
}

trace_context trace_context::child() const noexcept {
    trace_context next = *this;
    store_le(next.span_id.data(), random_nonzero_u64());
    return next;
}

std::string trace_context::traceparent() const {
    std::string text = "00-";
    append_hex(text, trace_id);
    text += '-';
    append_hex(text, span_id);
    return text + (sampled ? "-01" : "-00");
}

std::optional<trace_context> trace_context::parse(std::string_view text) noexcept {
    constexpr std::size_t length = 55;
    if (text.size() < length || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
    std::byte version[1];
    std::byte flags[1];
    trace_context read;
    if (!read_hex(text.substr(0, 2), version) || !read_hex(text.substr(3, 32), read.trace_id) ||
        !read_hex(text.substr(36, 16), read.span_id) || !read_hex(text.substr(53, 2), flags)) {
        return {};
    }
    // Later versions may append fields after another dash; this one may not.
    if (version[0] == std::byte{0xff}) return {};
    if (version[0] == std::byte{0} ? text.size() != length
                                   : text.size() > length && text[length] != '-') {
        return {};
    }
    if (all_zero(read.trace_id) || all_zero(read.span_id)) return {};
    read.sampled = (flags[0] & std::byte{1}) != std::byte{0};
    return read;
}

}  // namespace amalgam
