#pragma once

#include <cstddef>

namespace amalgam::detail {

/// The largest page of a kernel that the library runs on: 64 KiB, as many for AArch64 have it. What
/// of a file is mapped in parts begins at a multiple of this.
inline constexpr std::size_t largest_page_bytes = 64 * 1024;

}  // namespace amalgam::detail
