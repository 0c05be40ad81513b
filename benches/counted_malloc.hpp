#pragma once

#include <cstdint>

namespace amalgam::bench {

/// How often this program has taken memory from the heap so far, in all threads.
std::uint64_t allocations() noexcept;

}  // namespace amalgam::bench
