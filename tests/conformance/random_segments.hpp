#pragma once

#include <cstddef>
#include <vector>

#include <amalgam/core/random.hpp>

namespace amalgam {

/// Bytes determined by the seed.
inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed = 1) {
    std::vector<std::byte> made(bytes);
    seeded_random random(seed);
    for (std::byte& each : made)
        each = static_cast<std::byte>(random());
    return made;
}

/// Splits bytes into up to `count` segments at random places; some are empty.
template <typename Bytes>
std::vector<Bytes> cut(Bytes whole, std::size_t count, seeded_random& random) {
    std::vector<Bytes> parts;
    while (count-- > 1) {
        const std::size_t length = static_cast<std::size_t>(random.below(whole.size() + 1));
        parts.push_back(whole.first(length));
        whole = whole.subspan(length);
    }
    parts.push_back(whole);
    return parts;
}

}  // namespace amalgam
