#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "recorded_file.hpp"

namespace amalgam::detail {

/// What a unit waited for.
struct unit_wait {
    std::uint64_t from, until;
    std::uint32_t what;
};

/// A span, and the unit that ran where it was recorded; 0: none.
struct read_span {
    trace_span_bytes what;
    std::uint64_t unit;
};

/// The waits of units, by their events in the order of time. Of a unit the last 64 are kept.
class unit_waits {
public:
    void see(const trace_unit_bytes& event);
    /// Those within the time, and how many there were that are not kept.
    std::vector<unit_wait> within(std::uint64_t unit, std::uint64_t from, std::uint64_t until,
                                  std::uint64_t& lost) const;
    /// Those that had ended at the last call: spans that are still to be written may be of the
    /// others.
    void forget_ended();

private:
    struct unit {
        std::uint64_t parked = 0;  // Since when; 0: it is not.
        std::uint32_t what = 0;
        std::vector<unit_wait> waits;
        std::uint64_t lost_until = 0;  // When the last that is not kept ended.
        std::uint64_t lost = 0;
    };
    std::unordered_map<std::uint64_t, unit> units_;
    std::unordered_set<std::uint64_t> ended_, ended_before_;
};

/// The id of a handler's span, whose record has that of its call.
std::uint64_t handler_id(std::uint64_t call_id) noexcept;

/// Begins a request with the process as its resource; after its spans, end_request().
std::string begin_request(const recorded_file& of, std::string_view service,
                          std::string_view attributes);
void end_request(std::string& json);
/// Appends the span. `to_wall`: what its times lack of the time since 1970.
void append_span(std::string& json, const recorded_file& of, const read_span& span,
                 std::int64_t to_wall, const unit_waits& waits);

}  // namespace amalgam::detail
