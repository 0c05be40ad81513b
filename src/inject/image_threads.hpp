#pragma once

#include <string_view>

namespace amalgam::detail {

/// What images get where they import a function that starts threads: the same, but their image
/// stays until such a thread has ended. Null: not such a function.
void* thread_starting_symbol(std::string_view name);

}  // namespace amalgam::detail
