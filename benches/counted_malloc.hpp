#pragma once

#include <cstdint>

namespace amalgam::bench {

/// Heap allocations of this program so far, in all threads.
std::uint64_t allocations() noexcept;

}  // namespace amalgam::bench
