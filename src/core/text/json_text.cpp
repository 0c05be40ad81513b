#include <cstddef>
#include <iterator>

#include <fmt/format.h>

#include <amalgam/core/detail/json_text.hpp>

namespace amalgam::detail {
namespace {

/// Length of the valid UTF-8 sequence that `text` starts with, or 0 (RFC 3629: no overlong forms,
/// no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text) noexcept {
    auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    unsigned char first = at(0);
    if (first < 0x80) return 1;
    std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    if (at(1) < low || at(1) > high) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((at(i) & 0xc0) != 0x80) return 0;
    }
    return length;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        std::size_t length = utf8_length(text);
        char c = text.front();
        if (length == 0) {
            out += "\\ufffd";
            length = 1;
        } else if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (static_cast<unsigned char>(c) < 0x20) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
            out += text.substr(0, length);
        }
        text.remove_prefix(length);
    }
    out += '"';
}

}  // namespace amalgam::detail
