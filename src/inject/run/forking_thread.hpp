#pragma once

#include <sys/types.h>

namespace amalgam::detail {

/// Runs in a process that fork_apart() made. Does not return.
using apart = void (*)(void* context);

/// Forks this process from a dedicated thread that lives as long as the process, has a small stack
/// at a known place, and holds no lock of this layer during the fork. So the child's parent thread
/// never ends early, and PR_SET_PDEATHSIG means the end of this process. Returns the child's id;
/// negative: minus errno.
///
/// Threads: any; one fork at a time, others wait.
/// Failure: throws error{unsupported} in a child of fork(), which lacks that thread; {no_memory}.
pid_t fork_apart(apart what, void* context);

}  // namespace amalgam::detail
