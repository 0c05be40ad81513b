#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// How a confined run ended.
struct confined_end {
    errc code = errc::ok;
    std::string sentence{};
    std::vector<std::byte> result{};
};

/// Resource limits of confined code.
struct confined_limits {
    std::chrono::nanoseconds time;
    std::size_t result_bytes;
    std::size_t memory_bytes;
};

/// Returns its result, which stays in place. Nothing it works with may have run before, or be known
/// to anything that runs in this process.
using confined_work = std::function<const_bytes(void* payload, std::size_t bytes)>;

/// Runs `work(payload)` in a forked process, with a copy of this process's private memory and
/// nothing else: no shared memory, files or sockets, and few system calls beyond memory and clocks.
/// Its changes are discarded. It ends with this process, and when its time is up. See
/// docs/decisions/0013-confined-runs-are-forks.md.
///
/// Threads: any; parks the ULT or thread.
/// Failure: `handler_failed` with the error it threw, or how it ended: by a signal, or a refused
///          system call; `timed_out`, `canceled`, `too_large`, `no_memory`; `unsupported` if the
///          system cannot confine; `overloaded` if its process did not start. Throws as
///          fork_apart().
/// Cost:    a fork: some hundred microseconds, more with much memory.
confined_end run_confined(const confined_work& work, const_bytes payload, std::size_t alignment,
                          const confined_limits& limits);

}  // namespace amalgam::detail
