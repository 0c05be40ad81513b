#pragma once

#include <string>
#include <string_view>

namespace amalgam::detail {

/// Appends `text` to `out` as a JSON string with its quotes. Bytes that are no valid UTF-8
/// become U+FFFD, so the output always parses.
void append_json_string(std::string& out, std::string_view text);

}  // namespace amalgam::detail
