#pragma once

#include <chrono>
#include <cstdint>

#include <sys/types.h>

namespace amalgam::detail {

/// What a process may take that gives its rights up.
struct process_limits {
    std::chrono::nanoseconds time;  ///< It is ended then, whether anybody looks or not.
    std::uint64_t memory_bytes;     ///< More than it has.
};

/// In a process of its own: gives up, for good, all that is not computing, and makes it end with
/// its parent. What is left: memory that is not to be run, clocks, locks, and writing to that
/// descriptor, the only one that stays open. False: the system lacks something that this needs.
/// Asks for no memory.
bool give_up_rights(pid_t parent, int keep_fd, const process_limits& limits) noexcept;

}  // namespace amalgam::detail
