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

/// Runs `once` repeatedly for about `seconds` and measures its time.
///
/// Two phases, because reading the clock takes as long as a short round trip: most of the time
/// whole blocks of operations are timed, and ops_per_s is that of the median block, so that
/// interruptions by the machine do not matter; then single operations, for p50 and p99.
template <typename Operation>
measurement measure_round_trips(double seconds, Operation&& once) {
    constexpr int block = 200;
    const auto warm_until = clock_type::now() + std::chrono::duration<double>(seconds * 0.1);
    do
        once();
    while (clock_type::now() < warm_until);

    std::vector<double> blocks;
    const auto start = clock_type::now();
    do {
        const auto begin = clock_type::now();
        for (int i = 0; i < block; ++i)
            once();
        blocks.push_back(seconds_since(begin) / block);
    } while (seconds_since(start) < seconds * 0.6);

    std::vector<double> singles;
    const auto single_start = clock_type::now();
    do {
        const auto begin = clock_type::now();
        once();
        singles.push_back(seconds_since(begin));
    } while (seconds_since(single_start) < seconds * 0.3 && singles.size() < 4'000'000);

    const auto at = [](std::vector<double>& all, double part) {
        const auto nth =
            all.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(all.size() - 1));
        std::nth_element(all.begin(), nth, all.end());
        return *nth;
    };
    measurement m;
    m.ops_per_s = 1.0 / at(blocks, 0.5);
    m.p50_us = at(singles, 0.5) * 1e6;
    m.p99_us = at(singles, 0.99) * 1e6;
    return m;
}

}  // namespace amalgam::perf
