#pragma once

#include <cstddef>

namespace amalgam::bench {

inline constexpr std::size_t parked = 100'000;

/// MiB of resident memory that `parked` ULTs take while they wait for an event.
double parked_memory();

/// KiB by which resident memory grows while ten million ULTs are made and joined, here and on
/// another stream, past the first few.
double creation_growth();

}  // namespace amalgam::bench
