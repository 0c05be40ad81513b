#pragma once

#include <functional>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Blocks the signals that end a run, and SIGCHLD, and forks a process that calls `body`; passes
/// those signals on to it and returns what to exit with. Each of the two keeps the other's end
/// from leaving anything behind: both adopt orphans; this one ends whatever `body` had started
/// when that was killed, and `body` is given a descriptor that becomes readable when this process
/// is gone.
///
/// Threads: the caller's must be the only one.
/// Failure: throws error{no_memory}; an exception out of `body` is printed, and makes it 1.
int run_guarded(const std::function<int(unique_fd guard)>& body);

}  // namespace amalgam::detail
