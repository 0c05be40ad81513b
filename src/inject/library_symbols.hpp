#pragma once

#include <string_view>

namespace amalgam::detail {

/// What headers of this library need of it in images: see injected.hpp. Null: not that.
void* library_symbol(std::string_view name);

}  // namespace amalgam::detail
