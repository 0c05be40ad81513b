#pragma once

#include <cstdint>
#include <initializer_list>

#include <amalgam/core/random.hpp>

namespace amalgam::adversary {

/// A number that a limit may have forgotten: one of `edges`, its successor, its complement, or any.
inline std::uint64_t number_near(seeded_random& dice, std::initializer_list<std::uint64_t> edges) {
    const std::uint64_t edge = edges.begin()[dice.below(edges.size())];
    switch (dice.below(4)) {
        case 0:
            return dice();
        case 1:
            return ~edge;
        case 2:
            return edge + 1;
        default:
            return edge;
    }
}

}  // namespace amalgam::adversary
