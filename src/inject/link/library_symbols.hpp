#pragma once

#include <string_view>

namespace amalgam::detail {

/// The functions that image.h declares, and those of this library that injected.hpp needs in
/// images. Null for others.
void* library_symbol(std::string_view name);

}  // namespace amalgam::detail
