#pragma once

#include <string_view>

namespace amalgam::detail {

/// Writes all of it; errors are ignored, and a pipe without a reader gives no signal.
void write_text(int fd, std::string_view text) noexcept;

}  // namespace amalgam::detail
