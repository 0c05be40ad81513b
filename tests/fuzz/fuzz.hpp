#pragma once

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include <amalgam/core/bytes.hpp>

/// Interface between a fuzz test and both drivers (libFuzzer and the mutation test).
namespace amalgam::fuzz {

/// Feeds one input to the code under test. Must return for every input; a violated property ends
/// the process through require().
void run_one(const_bytes input);

/// Valid inputs to start mutation from.
std::span<const std::string_view> seeds();

/// Ends the process if a property does not hold: both drivers then report the input.
inline void require(bool holds, std::string_view property) {
    if (holds) return;
    std::fprintf(stderr, "broken property: %.*s\n", static_cast<int>(property.size()),
                 property.data());
    std::abort();
}

}  // namespace amalgam::fuzz
