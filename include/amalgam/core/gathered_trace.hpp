#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>

namespace amalgam {

/// One process of a gathered trace.
struct traced_process {
    std::string program;        ///< Path of its executable.
    std::string host;           ///< Name of the host it ran on.
    std::uint32_t pid = 0;      ///< Its process id there.
    std::uint64_t records = 0;  ///< That were read.
    std::uint64_t dropped = 0;  ///< That found no room: see AMALGAM_TRACE_MIB.
    /// Names, peers and details that are missing in its records: a process has room for some 4,000
    /// different ones, of up to 112 bytes.
    std::uint64_t unnamed = 0;
    /// What was added to its times. Processes of one host share a clock, so it is 0 there.
    std::chrono::nanoseconds clock_offset{0};
    /// How wrong that may be: half of the shortest round trip between the two hosts. Negative:
    /// no traced call went between them, and the hosts' wall clocks were taken.
    std::chrono::nanoseconds clock_error{0};
};

/// What was written by write_chrome_trace().
struct gathered_trace {
    std::vector<traced_process> processes;  ///< By the time that they began to record.
    std::uint64_t events = 0;               ///< That were written, of all processes.
    std::vector<std::string> unreadable;    ///< Files that hold no trace, each with the reason.
};

/// Reads what processes recorded with AMALGAM_TRACE in these folders, and writes it as one trace in
/// Chrome's JSON format, which ui.perfetto.dev shows: processes with their streams, what each runs,
/// calls, handlers and transfers, and an arrow from each call to its handler. Clocks of several
/// hosts are aligned by the calls between them, as NTP does. Processes may still be running.
///
/// Failure: throws error{not_found} if the folders hold no trace, error{invalid} if a folder or the
///          file cannot be read or written; the file is then as before.
/// Cost:    memory for the spans of one process at a time, and for all calls between processes.
gathered_trace write_chrome_trace(std::span<const std::string> folders, const std::string& file);

}  // namespace amalgam
