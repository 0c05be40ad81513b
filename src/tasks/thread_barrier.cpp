#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/tasks/detail/thread_barrier.hpp>

namespace amalgam::detail {

bool barrier_on_all_threads() noexcept {
    static const bool registered =
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    if (registered && ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return true;
    // Slow; in every kernel since 4.3.
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
}

}  // namespace amalgam::detail
