#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace amalgam::detail {

/// The part of a call that each side has seen.
struct seen_call {
    std::uint64_t sent = 0, answered = 0;     // By the caller's clock.
    std::uint64_t arrived = 0, returned = 0;  // By the server's.
    std::size_t caller = 0, server = 0;       // Clocks, if the time is there.
};

/// To add to times of the second clock for those of the first.
struct clock_difference {
    std::int64_t offset = 0;
    std::int64_t error = -1;
};

struct host_clock {
    std::int64_t to_wall = 0;
    std::int64_t offset = 0;  // To the first.
    std::int64_t error = 0;
    bool known = false;
};

/// By the indexes of two clocks.
using clock_differences = std::map<std::pair<std::size_t, std::size_t>, clock_difference>;

/// As NTP: both ways of a round trip are taken to be equally long, and the shortest is believed.
void compare(clock_differences& all, const seen_call& call);

/// The most that a clock is moved by: times are below 2^60, so nothing that is computed of them
/// overflows, whatever the files say and over however many hosts.
inline constexpr std::int64_t most_offset = std::int64_t{1} << 61;

/// Gives each clock its offset to the first, over the hosts between them with the least error; by
/// the wall clocks where no calls connect them.
void align_clocks(std::vector<host_clock>& clocks, const clock_differences& all);

}  // namespace amalgam::detail
