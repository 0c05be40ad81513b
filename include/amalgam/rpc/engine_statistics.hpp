#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace amalgam {

class engine;

/// What is known of a number that was measured many times. All 0 where it never was.
struct value_summary {
    std::uint64_t num = 0;  ///< How often.
    std::uint64_t min = 0;  ///< The smallest,
    std::uint64_t max = 0;  ///< and the largest.
    std::uint64_t sum = 0;  ///< Of all of them.
    double mean = 0;        ///< `sum` by `num`.
    double variance = 0;    ///< Of all of them around `mean`, in the square of the unit.

    friend bool operator==(const value_summary&, const value_summary&) = default;
};

/// What a row is of: one procedure, one peer, and the handler that made the calls.
struct call_path {
    std::string procedure;              ///< "sum"; of transfers "pull" or "push".
    std::uint16_t provider = 0;         ///< Of the procedure.
    std::string peer;                   ///< Address; empty only in the row of all others.
    std::string parent;                 ///< Procedure whose handler called; empty: none did.
    std::uint16_t parent_provider = 0;  ///< Of that procedure.

    friend bool operator==(const call_path&, const call_path&) = default;
};

/// Calls of one path that this engine made, each with its retries.
struct made_calls {
    call_path path;              ///< To which peer, and from within which handler here.
    std::uint64_t failures = 0;  ///< Of `took.num`: those that ended without a value.
    value_summary took;          ///< Nanoseconds from the call to its end.

    friend bool operator==(const made_calls&, const made_calls&) = default;
};

/// Calls of one path whose handler has returned here, one-way calls included.
struct handled_calls {
    call_path path;              ///< From which peer, and from within which handler there.
    std::uint64_t failures = 0;  ///< Of `ran.num`: those whose handler failed.
    value_summary waited;        ///< Nanoseconds from the arrival to the start of the handler.
    value_summary ran;           ///< Nanoseconds in the handler, with its own calls and waits.

    friend bool operator==(const handled_calls&, const handled_calls&) = default;
};

/// Pulls or pushes of one path that this engine asked for.
struct made_transfers {
    call_path path;              ///< With whose memory, and from within which handler here.
    std::uint64_t failures = 0;  ///< Of `took.num`.
    value_summary bytes;         ///< Of each, as asked for.
    value_summary took;          ///< Nanoseconds from the request to its end.

    friend bool operator==(const made_transfers&, const made_transfers&) = default;
};

/// What an engine with engine_options::statistics has counted: what has ended so far, each row
/// once, by its path. Rows that found no room are together in the last one of their list, of the
/// procedure "others" and no peer.
struct engine_statistics {
    std::vector<made_calls> calls;          ///< The calling side.
    std::vector<handled_calls> handlers;    ///< The serving side.
    std::vector<made_transfers> transfers;  ///< Of bulk memory, and of large arguments and results.

    friend bool operator==(const engine_statistics&, const engine_statistics&) = default;
};

/// Reads what `here` has counted, also after its end. Of handlers on other streams that return
/// meanwhile, a row may have one number already and not yet another.
/// Threads: any; asks the engine's stream.
/// Failure: throws error{invalid} if the engine does not count; error{closed} in a child of fork().
engine_statistics read_statistics(engine& here);

/// Writes them as to_json() has them, now. `file` as statistics_options::file; empty: that one.
/// Failure: throws error{invalid}, with a sentence, for a file that cannot be written, which is
///          then as it was; else as read_statistics().
void write_statistics(engine& here, std::string_view file = {});

/// One JSON object on one line; times in nanoseconds:
///     {"calls": [{"procedure": "sum", "provider": 0, "peer": "tcp://10.1.0.2:7000",
///       "parent": "total", "parent_provider": 0, "failures": 0,
///       "took_ns": {"num": 2, "min": 900, "max": 1100, "sum": 2000, "mean": 1000.0,
///                   "variance": 10000.0}}],
///      "handlers": [{…, "waited_ns": {…}, "ran_ns": {…}}],
///      "transfers": [{…, "bytes": {…}, "took_ns": {…}}]}
std::string to_json(const engine_statistics& all);

}  // namespace amalgam
