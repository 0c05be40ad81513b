#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace amalgam::detail {

inline bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// `text` for a terminal, whatever it holds: its control bytes as \x1b, but for line ends and tabs.
inline std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text) {
        if (is_control(c) && c != '\n' && c != '\t')
            shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            shown += c;
    }
    return shown;
}

/// A name: all of its control bytes.
inline std::string printable_name(std::string_view name) {
    std::string shown;
    for (const char c : name)
        shown += is_control(c) ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
                               : std::string(1, c);
    return shown;
}

}  // namespace amalgam::detail
