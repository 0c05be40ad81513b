#pragma once

#include <sys/types.h>

namespace amalgam::detail {

/// What is run in a process that fork_apart() made. Does not return.
using apart = void (*)(void* context);

/// Forks this process by a thread that lives as long as it, whose stack is small and known, and
/// which holds no lock of this layer meanwhile. The child is so no child of a thread that may end
/// before it, and PR_SET_PDEATHSIG means this process. Returns the child's id; negative: minus
/// errno.
///
/// Threads: any; one fork at a time, the others wait for it.
/// Failure: throws error{unsupported} in a child of fork(), which has not got that thread;
///          {no_memory}.
pid_t fork_apart(apart what, void* context);

}  // namespace amalgam::detail
