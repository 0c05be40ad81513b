#pragma once

#include <string>
#include <string_view>

namespace amalgam::detail {

inline bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// Adds `c`, a control byte as \x1b.
inline void add_printable(std::string& to, char c) {
    if (!is_control(c)) {
        to += c;
        return;
    }
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    to += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

/// `text` for a terminal, whatever it holds: its control bytes as \x1b, but for line ends and tabs.
inline std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text) {
        if (c == '\n' || c == '\t')
            shown += c;
        else
            add_printable(shown, c);
    }
    return shown;
}

/// A name in a sentence: all of its control bytes, also one that would end the sentence there.
inline std::string printable_name(std::string_view name) {
    std::string shown;
    for (const char c : name)
        add_printable(shown, c);
    return shown;
}

}  // namespace amalgam::detail
