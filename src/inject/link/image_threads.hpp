#pragma once

#include <string_view>

namespace amalgam::detail {

/// Substitutes, for images, for imported functions that start threads: they also keep the image
/// alive until that thread has ended. Null for other functions.
void* thread_starting_symbol(std::string_view name);

}  // namespace amalgam::detail
