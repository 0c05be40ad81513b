#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/tasks/extension/thread_barrier.hpp>

namespace amalgam::detail {

namespace {

bool membarrier(int command) noexcept {
    return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

bool barrier_on_all_threads() noexcept {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
    // First use in this process, which may be a child of one that has registered.
    if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return true;
    return membarrier(MEMBARRIER_CMD_GLOBAL);  // Slow; available since Linux 4.3.
}

}  // namespace amalgam::detail
