#pragma once

#include <string_view>

namespace amalgam::detail {

/// What image.h declares, and what injected.hpp needs of this library in images. Null: not that.
void* library_symbol(std::string_view name);

}  // namespace amalgam::detail
