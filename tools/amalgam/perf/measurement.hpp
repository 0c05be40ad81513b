#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace amalgam::perf {

/// One result of `amalgam perf`, and of the benchmarks.
struct measurement {
    std::string test;
    std::string uri;
    std::size_t size_bytes = 0;
    std::size_t depth = 1;
    double ops_per_s = 0;
    double bytes_per_s = 0;
    double p50_us = 0;  ///< Of single operations; 0 if only a rate is measured.
    double p99_us = 0;
};

/// One JSON object, without line end.
std::string to_json(const measurement&);
/// Parses it; empty if it is malformed.
std::optional<measurement> measurement_from_json(const std::string& text);
/// Header and row of the table for people.
std::string table_head();
std::string table_row(const measurement&);

using clock_type = std::chrono::steady_clock;

inline double seconds_since(clock_type::time_point start) {
    return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// The value that `part` of them, 0 to 1, do not exceed. Changes their order.
inline double quantile(std::vector<double>& all, double part) {
    const auto nth =
        all.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), nth, all.end());
    return *nth;
}

/// Runs `once` repeatedly: to warm up, and then for about `seconds`. Returns how many a second.
///
/// Whole blocks of operations are timed, because reading the clock takes as long as a short round
/// trip. The median block counts, so that interruptions by the machine do not matter. With `depth`
/// operations in flight, of which `once` posts one and ends an earlier one, a block is no shorter:
/// it would say how long posting takes.
template <typename Operation>
double measure_rate(double warm_seconds, double seconds, std::size_t depth, Operation&& once) {
    constexpr int longest_block = 200;
    int warm = 0;
    const auto warm_start = clock_type::now();
    do {
        once();
        ++warm;
    } while (seconds_since(warm_start) < warm_seconds);

    // There are many blocks also where an operation takes long.
    const int block = std::max(static_cast<int>(depth), std::clamp(warm / 2, 1, longest_block));
    std::vector<double> blocks;
    const auto start = clock_type::now();
    do {
        const auto begin = clock_type::now();
        for (int i = 0; i < block; ++i)
            once();
        blocks.push_back(seconds_since(begin) / block);
    } while (seconds_since(start) < seconds);
    return 1.0 / quantile(blocks, 0.5);
}

/// Runs `once` repeatedly for about `seconds` and measures its time: ops_per_s as measure_rate(),
/// then single operations, for p50 and p99.
template <typename Operation>
measurement measure_round_trips(double seconds, std::size_t depth, Operation&& once) {
    measurement m;
    m.ops_per_s = measure_rate(seconds * 0.1, seconds * 0.6, depth, once);

    std::vector<double> singles;
    const auto single_start = clock_type::now();
    do {
        const auto begin = clock_type::now();
        once();
        singles.push_back(seconds_since(begin));
    } while (seconds_since(single_start) < seconds * 0.3 && singles.size() < 4'000'000);

    m.p50_us = quantile(singles, 0.5) * 1e6;
    m.p99_us = quantile(singles, 0.99) * 1e6;
    return m;
}

template <typename Operation>
measurement measure_round_trips(double seconds, Operation&& once) {
    return measure_round_trips(seconds, 1, once);
}

}  // namespace amalgam::perf
