#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/rpc/engine_statistics.hpp>

namespace amalgam::detail {

__extension__ using uint128 = unsigned __int128;

/// A sum of values, as it is read: sums of the same number add up.
struct value_sums {
    std::uint64_t num = 0;
    std::uint64_t min = UINT64_MAX;
    std::uint64_t max = 0;
    std::uint64_t sum = 0;
    uint128 squares = 0;  ///< Sum of the squares.

    void add(const value_sums& others) noexcept;
    value_summary told() const noexcept;
};

/// One number that is measured many times.
///
/// Threads: any. Each word is exact; who reads while others add may see one value in some of the
///          words only.
/// Cost:    five atomic additions, and two more until the extremes are known.
class summed_value {
public:
    void add(std::uint64_t value) noexcept;
    value_sums read() const noexcept;

private:
    std::atomic<std::uint64_t> num_{0};
    std::atomic<std::uint64_t> min_{UINT64_MAX};
    std::atomic<std::uint64_t> max_{0};
    std::atomic<std::uint64_t> sum_{0};
    std::atomic<std::uint64_t> low_{0};   // Of the sum of squares;
    std::atomic<std::uint64_t> high_{0};  // 64 bits would last for a second's square.
};

}  // namespace amalgam::detail
