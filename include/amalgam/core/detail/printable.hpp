#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace amalgam::detail {

inline bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// How many bytes at the front of `text` are one character, in UTF-8, that is no part of a name: a
/// control (C0, DEL or C1), a break between lines, or one that changes the direction of the text
/// around it, so that another name shows. 0: it begins with something else.
inline std::size_t control_at_front(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i])
                               : static_cast<unsigned char>(0);
    };
    if (text.empty()) return 0;
    if (is_control(text[0])) return 1;
    switch (at(0)) {
        case 0xc2:  // U+0080 to U+009F.
            return at(1) >= 0x80 && at(1) <= 0x9f ? 2 : 0;
        case 0xd8:  // U+061C.
            return at(1) == 0x9c ? 2 : 0;
        case 0xe2:  // U+200E, U+200F, U+2028 to U+202E; U+2066 to U+2069.
            if (at(1) == 0x80)
                return at(2) == 0x8e || at(2) == 0x8f || (at(2) >= 0xa8 && at(2) <= 0xae) ? 3 : 0;
            return at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9 ? 3 : 0;
        default:
            return 0;
    }
}

inline bool has_controls(std::string_view text) noexcept {
    for (; !text.empty(); text.remove_prefix(1))
        if (control_at_front(text) != 0) return true;
    return false;
}

/// Appends the first character of `text`, each byte of a control as \x1b; returns how many bytes it
/// took.
inline std::size_t add_printable(std::string& to, std::string_view text) {
    const std::size_t bytes = control_at_front(text);
    if (bytes == 0) {
        to += text[0];
        return 1;
    }
    constexpr char digits[] = "0123456789abcdef";
    for (const char each : text.substr(0, bytes)) {
        const auto byte = static_cast<unsigned char>(each);
        to += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
    return bytes;
}

/// Makes any `text` safe for a terminal: controls become \x1b, except line ends and tabs.
inline std::string printable(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        if (text[0] == '\n' || text[0] == '\t') {
            shown += text[0];
            text.remove_prefix(1);
        } else {
            text.remove_prefix(add_printable(shown, text));
        }
    }
    return shown;
}

/// The same for a name in a sentence: escapes all controls, including line ends and tabs.
inline std::string printable_name(std::string_view name) {
    std::string shown;
    while (!name.empty())
        name.remove_prefix(add_printable(shown, name));
    return shown;
}

}  // namespace amalgam::detail
