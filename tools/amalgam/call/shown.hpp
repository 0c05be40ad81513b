#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace amalgam::tool {

/// The first character of `text` in UTF-8, and how many bytes it takes; 0 bytes: it is none.
struct character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;
};

inline character first_character(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i])
                               : static_cast<unsigned char>(0);
    };
    const std::uint32_t first = at(0);
    if (first < 0x80) return {first, text.empty() ? 0u : 1u};
    const std::size_t bytes = first >= 0xf0 && first <= 0xf4   ? 4
                              : first >= 0xe0 && first <= 0xef ? 3
                              : first >= 0xc2 && first <= 0xdf ? 2
                                                               : 0;
    std::uint32_t code = bytes == 0 ? 0 : first & (0x7fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((at(i) & 0xc0) != 0x80) return {};
        code = code << 6 | (at(i) & 0x3f);
    }
    const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
    const bool no_character = (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff;
    return too_long || no_character ? character{} : character{code, bytes};
}

/// Whether a terminal takes it as an order (C0, DEL, C1), as a break between lines, or as a change
/// of direction, by which another text shows than is there.
inline bool drives_a_terminal(std::uint32_t code) noexcept {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x061c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/// Text of a peer or user, safe for a terminal and short enough for a sentence. What is no UTF-8 is
/// escaped, too: a terminal that expects no UTF-8 takes some of it as orders.
inline std::string shown(std::string_view text, std::size_t most = 200) {
    std::string safe;
    std::size_t at = 0;
    while (at < text.size()) {
        const character next = first_character(text.substr(at));
        const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
        if (at + bytes > most) break;
        for (const char c : text.substr(at, bytes)) {
            if (next.bytes != 0 && !drives_a_terminal(next.code)) {
                safe += c;
                continue;
            }
            const auto byte = static_cast<unsigned char>(c);
            constexpr char digits[] = "0123456789abcdef";
            safe += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        }
        at += bytes;
    }
    return at < text.size() ? safe + "…" : safe;
}

/// JSON in which nothing drives a terminal: in its texts, what does is escaped as JSON allows.
inline std::string shown_json(std::string_view text) {
    std::string safe;
    safe.reserve(text.size());
    while (!text.empty()) {
        const character next = first_character(text);
        const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
        // C0 is escaped already, and lines end outside of texts.
        if (next.code >= 0x7f && drives_a_terminal(next.code)) {
            constexpr char digits[] = "0123456789abcdef";
            safe += "\\u";
            for (int shift = 12; shift >= 0; shift -= 4)
                safe += digits[next.code >> shift & 15];
        } else {
            safe += text.substr(0, bytes);
        }
        text.remove_prefix(bytes);
    }
    return safe;
}

}  // namespace amalgam::tool
