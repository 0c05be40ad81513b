#pragma once

#include <string>
#include <string_view>

namespace amalgam::detail {

/// Appends `text` to `out` as a quoted JSON string. Invalid UTF-8 bytes become U+FFFD, so the
/// output always parses.
void append_json_string(std::string& out, std::string_view text);

}  // namespace amalgam::detail
