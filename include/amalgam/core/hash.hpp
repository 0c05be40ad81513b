#pragma once

#include <cstdint>
#include <string_view>

namespace amalgam {

/// FNV-1a, 64 bits. The same on every machine and in every release, so the wire may compare names
/// by it. Not collision-resistant against adversaries.
/// `seed` continues an earlier hash: fnv1a("bc", fnv1a("a")) == fnv1a("abc").
constexpr std::uint64_t fnv1a(std::string_view text,
                              std::uint64_t seed = 0xcbf29ce484222325u) noexcept {
    for (char c : text) {
        seed ^= static_cast<unsigned char>(c);
        seed *= 0x100000001b3u;
    }
    return seed;
}

/// Spreads every bit of `x` over all 64 bits. A bijection: distinct inputs give distinct outputs.
/// The finalizer of splitmix64.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

}  // namespace amalgam
