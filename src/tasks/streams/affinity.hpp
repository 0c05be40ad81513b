#pragma once

#include <pthread.h>

#include <amalgam/tasks/cpu_set.hpp>

namespace amalgam::detail {

/// The CPUs that a thread may use; empty if that cannot be found out.
cpu_set affinity_of(pthread_t thread);
/// Empty: all that the process may use. Returns 0 or an errno; EINVAL if it
/// may not use all of them.
int bind_thread(pthread_t thread, const cpu_set& to);

}  // namespace amalgam::detail
