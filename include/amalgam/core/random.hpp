#pragma once

#include <cstdint>
#include <limits>

#include <amalgam/core/hash.hpp>

namespace amalgam {

/// 64 bits from the kernel's generator; for keys and incarnations that must be unguessable.
///
/// Threads: any; a forked child never repeats its parent's numbers.
/// Failure: aborts if the kernel has no randomness (never seen after boot).
/// Cost:    a copy from a per-thread buffer; one system call per 64 numbers.
std::uint64_t random_u64() noexcept;

/// As random_u64(), but never 0; for ids where 0 means none.
std::uint64_t random_nonzero_u64() noexcept;

/// A small generator that repeats its sequence for the same seed; for tests and simulations, never
/// for keys. Works with `<random>` and std::shuffle.
///
/// Threads: one at a time.
class seeded_random {
public:
    using result_type = std::uint64_t;

    explicit constexpr seeded_random(std::uint64_t seed) noexcept : state_(seed) {}

    static constexpr result_type min() noexcept { return 0; }
    static constexpr result_type max() noexcept { return std::numeric_limits<result_type>::max(); }
    constexpr result_type operator()() noexcept { return mix(state_ += 0x9e3779b97f4a7c15u); }

    /// A number in [0, bound), with a bias below 2^-32 for bounds under 2^32.
    /// Precondition: bound > 0.
    constexpr std::uint64_t below(std::uint64_t bound) noexcept { return (*this)() % bound; }

    /// True with probability `p` (0 never, 1 always).
    constexpr bool chance(double p) noexcept {
        return static_cast<double>((*this)() >> 11) * 0x1p-53 < p;
    }

private:
    std::uint64_t state_;
};

}  // namespace amalgam
