#pragma once

#include <string>
#include <string_view>

namespace amalgam::detail {

inline bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// Appends `c`; a control byte as \x1b.
inline void add_printable(std::string& to, char c) {
    if (!is_control(c)) {
        to += c;
        return;
    }
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    to += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

/// Makes any `text` safe for a terminal: control bytes become \x1b, except line ends and tabs.
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

/// The same for a name in a sentence: escapes all control bytes, including line ends and tabs.
inline std::string printable_name(std::string_view name) {
    std::string shown;
    for (const char c : name)
        add_printable(shown, c);
    return shown;
}

}  // namespace amalgam::detail
