#pragma once

#include <cstddef>

namespace amalgam::bench {

inline constexpr std::size_t parked = 100'000;

/// Resident memory, in MiB, of `parked` ULTs waiting for an event.
double parked_memory();

/// Growth of resident memory, in KiB, while ten million ULTs are created and joined, here and on
/// another stream, after the first few.
double creation_growth();

}  // namespace amalgam::bench
