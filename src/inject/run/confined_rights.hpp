#pragma once

#include <chrono>
#include <cstdint>

#include <sys/types.h>

namespace amalgam::detail {

/// Resource limits of a confined process.
struct process_limits {
    std::chrono::nanoseconds time;  ///< The process ends then, even if nobody watches it.
    std::uint64_t memory_bytes;     ///< In addition to what it has.
};

/// Called in the forked process: gives up, for good, every right except computing, and makes it end
/// with its parent. What remains: non-executable memory, clocks, locks, and writing to that
/// descriptor, the only one left open. False if the system lacks something this needs. Allocates no
/// memory.
bool give_up_rights(pid_t parent, int keep_fd, const process_limits& limits) noexcept;

}  // namespace amalgam::detail
