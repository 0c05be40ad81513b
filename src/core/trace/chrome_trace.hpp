#pragma once

#include <cstdint>
#include <unordered_map>

#include "chrome_events.hpp"
#include "recorded_file.hpp"

namespace amalgam::detail {

/// From a call to its handler, each in a slice.
struct arrow {
    struct end {
        std::uint32_t pid = 0;  ///< 0: there is none.
        std::uint64_t tid = 0;
        std::int64_t time = 0;
    };
    end from;
    end to;
};
/// By the span of the call. Several calls of one span have one arrow.
using arrow_table = std::unordered_map<std::uint64_t, arrow>;

/// Writes what one process recorded, `offset` added to its times, and notes where arrows begin and
/// end.
void write_process(event_writer& to, const recorded_process& what, std::int64_t offset,
                   arrow_table& arrows);
/// Writes those that have both ends.
void write_arrows(event_writer& to, const arrow_table& all);

}  // namespace amalgam::detail
