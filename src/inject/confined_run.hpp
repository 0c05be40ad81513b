#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// How what ran apart ended.
struct confined_end {
    errc code = errc::ok;
    std::string sentence{};
    std::vector<std::byte> result{};
};

/// What confined code may take.
struct confined_limits {
    std::chrono::nanoseconds time;
    std::size_t result_bytes;
    std::size_t memory_bytes;
};

/// Gives its result, which stays where it is. Nothing of what it works with was run before, or is
/// known to anything that runs in this process.
using confined_work = std::function<const_bytes(void* payload, std::size_t bytes)>;

/// Runs `work(payload)` in a process of its own, which has a copy of all private memory of this one
/// as it is now, and nothing else: no shared memory, no files, no sockets, and of the system little
/// more than memory and clocks. What it changed is gone with it. It ends with this process, and
/// when its time is over. See docs/decisions/0013-confined-runs-are-forks.md.
///
/// Threads: any; parks the ULT or thread.
/// Failure: `handler_failed` with what it threw, or how it ended: by a signal, or by what the
///          system refused it; `timed_out`, `canceled`, `too_large`, `no_memory`; `unsupported`
///          where the system cannot confine; `overloaded` when its process did not begin. Throws
///          what fork_apart() does.
/// Cost:    a fork: some hundred microseconds, more with much memory.
confined_end run_confined(const confined_work& work, const_bytes payload, std::size_t alignment,
                          const confined_limits& limits);

}  // namespace amalgam::detail
