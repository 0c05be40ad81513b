#include "rpc/statistics/summed_value.hpp"

#include <algorithm>

namespace amalgam::detail {

void value_sums::add(const value_sums& others) noexcept {
    num += others.num;
    min = std::min(min, others.min);
    max = std::max(max, others.max);
    sum += others.sum;
    squares += others.squares;
}

value_summary value_sums::told() const noexcept {
    if (num == 0) return {};
    // Exact until the last division, so that a small variance of large values is not lost: with
    // sum = q * num + r, num * variance = squares - q * q * num - 2 * q * r - r * r / num.
    const uint128 q = sum / num;
    const std::uint64_t r = sum % num;
    const uint128 whole = q * q * num + 2 * q * r;
    const auto count = static_cast<double>(num);
    const double part = static_cast<double>(r) * static_cast<double>(r) / count;
    const double around = squares > whole ? static_cast<double>(squares - whole) - part : 0;
    return {.num = num,
            .min = min,
            .max = max,
            .sum = sum,
            .mean = static_cast<double>(sum) / count,
            .variance = std::max(around, 0.0) / count};
}

void summed_value::add(std::uint64_t value) noexcept {
    const uint128 square = uint128{value} * value;
    const auto low = static_cast<std::uint64_t>(square);
    // The additions to low_ have an order, in which each carry is seen by one of them.
    const bool carries = low_.fetch_add(low, std::memory_order_relaxed) > UINT64_MAX - low;
    const std::uint64_t high = static_cast<std::uint64_t>(square >> 64) + (carries ? 1 : 0);
    if (high != 0) high_.fetch_add(high, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
    std::uint64_t known = min_.load(std::memory_order_relaxed);
    while (value < known && !min_.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
    }
    known = max_.load(std::memory_order_relaxed);
    while (value > known && !max_.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
    }
    num_.fetch_add(1, std::memory_order_relaxed);
}

value_sums summed_value::read() const noexcept {
    const auto load = [](const auto& from) { return from.load(std::memory_order_relaxed); };
    return {.num = load(num_),
            .min = load(min_),
            .max = load(max_),
            .sum = load(sum_),
            .squares = uint128{load(high_)} << 64 | load(low_)};
}

}  // namespace amalgam::detail
