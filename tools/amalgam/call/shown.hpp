#pragma once

#include <string>
#include <string_view>

namespace amalgam::tool {

/// Text of a peer or user, safe for a terminal and short enough for a sentence.
inline std::string shown(std::string_view text, std::size_t most = 200) {
    std::string safe;
    for (const char c : text.substr(0, most)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            safe += c;
        } else {
            constexpr char digits[] = "0123456789abcdef";
            safe += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return text.size() > most ? safe + "…" : safe;
}

}  // namespace amalgam::tool
