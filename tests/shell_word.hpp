#pragma once

#include <string>
#include <string_view>

namespace amalgam {

/// A path as a word of a shell's command line, which may stand inside quotes there: what another
/// shell reads again.
inline std::string shell_word(std::string_view path) {
    std::string word;
    for (const char each : path) {
        if (std::string_view(" \t&;()<>|*?[]#~").find(each) != std::string_view::npos) word += '\\';
        word += each;
    }
    return word;
}

}  // namespace amalgam
