#pragma once

#include <functional>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Blocks SIGCHLD and the signals that end a run, and forks a process that calls `body`. Forwards
/// those signals to it, and returns its exit code. Neither process leaves anything behind when the
/// other one is killed: both adopt orphans; this one kills whatever `body` had started; `body` gets
/// a descriptor that becomes readable when this process is gone.
///
/// Threads: the calling thread must be the only one.
/// Failure: throws error{no_memory}; an exception thrown by `body` is printed, and returns 1.
int run_guarded(const std::function<int(unique_fd guard)>& body);

}  // namespace amalgam::detail
