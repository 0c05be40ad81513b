#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/clock.hpp>

namespace amalgam {

/// The buckets of all latency histograms, in nanoseconds: one for each value below 32, then 16 of
/// equal width for each doubling, up to 2^40 ns (18 minutes); longer times count as that. So a
/// value in the middle of its bucket is at most 1/32 (3.2 %) off.
struct latency_buckets {
    static constexpr unsigned exact_bits = 5;        ///< Values below 2^5 have a bucket each.
    static constexpr unsigned max_bits = 40;         ///< Values from 2^40 on count as the longest.
    static constexpr std::size_t per_doubling = 16;  ///< Buckets from one power of two to the next.
    /// How many buckets there are.
    static constexpr std::size_t count =
        (std::size_t{1} << exact_bits) + (max_bits - exact_bits) * per_doubling;

    /// The bucket that a time of `ns` nanoseconds falls into.
    static constexpr std::size_t index_of(std::uint64_t ns) noexcept {
        if (ns < (1u << exact_bits)) return static_cast<std::size_t>(ns);
        const auto doublings = static_cast<unsigned>(std::bit_width(ns)) - 1;
        if (doublings >= max_bits) return count - 1;
        return (doublings - exact_bits + 1) * per_doubling +
               static_cast<std::size_t>(ns >> (doublings - 4));
    }
    /// The smallest value of a bucket; of bucket `count`, the end of the last one.
    static constexpr std::uint64_t first_of(std::size_t index) noexcept {
        if (index < (1u << exact_bits)) return index;
        const std::size_t doublings = index / per_doubling - 1;
        return (per_doubling + index % per_doubling) << doublings;
    }
};

/// What a latency histogram has counted, as a value: to merge, to send, to ask for quantiles.
struct latency_distribution {
    std::vector<std::uint64_t> counts;  ///< By bucket, up to the last that has any.
    std::uint64_t total_ns = 0;         ///< Of all recorded times.

    /// How many times were recorded.
    std::uint64_t count() const noexcept;
    /// How many took less than 2^`bits` ns.
    std::uint64_t count_below(unsigned bits) const noexcept;
    clock::duration mean() const noexcept;
    /// The time that the fraction `q` (0 to 1) of all did not exceed; at most 3.2 % off. 0 if there
    /// are none.
    clock::duration quantile(double q) const noexcept;
    /// Adds what another one has counted.
    void merge(const latency_distribution& other);

    template <typename Archive>
    void serialize(Archive& a) {
        a(counts, total_ns);
    }
    friend bool operator==(const latency_distribution&, const latency_distribution&) = default;
};

/// Counts durations by size, in fixed memory (4.7 KiB).
///
/// Threads: any. It orders no other memory: a snapshot may miss what others are recording.
/// Cost:    record() is two relaxed atomic additions; no lock, no allocation.
class latency_histogram {
public:
    void record(clock::duration took) noexcept {
        const std::int64_t given = std::chrono::nanoseconds(took).count();
        const std::uint64_t ns = given < 0 ? 0 : static_cast<std::uint64_t>(given);
        counts_[latency_buckets::index_of(ns)].fetch_add(1, std::memory_order_relaxed);
        total_ns_.fetch_add(ns, std::memory_order_relaxed);
    }
    /// What was recorded so far; other threads may go on recording.
    latency_distribution snapshot() const;

private:
    std::array<std::atomic<std::uint64_t>, latency_buckets::count> counts_{};
    std::atomic<std::uint64_t> total_ns_{0};
};

}  // namespace amalgam
