#pragma once

#include <string_view>

namespace amalgam {

/// What a test says of a sentence, whose exact words are somebody else's or a machine's.
inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace amalgam
