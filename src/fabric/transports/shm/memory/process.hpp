#pragma once

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// A descriptor that becomes readable when that process ends; empty if not available.
unique_fd watch_process(pid_t pid) noexcept;
/// Whether the process has ended, with all its threads. Cost: one system call.
bool has_process_ended(int watched) noexcept;
/// Whether the process is stopped by a signal or a debugger, or in an uninterruptible call.
bool is_process_stopped(pid_t pid) noexcept;

}  // namespace amalgam::detail
