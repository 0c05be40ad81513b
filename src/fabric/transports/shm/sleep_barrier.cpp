#include "fabric/transports/shm/sleep_barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amalgam::detail {

bool join_sleep_barriers() noexcept {
    const long can = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return can >= 0 && (can & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
           ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void sleep_barrier() noexcept {
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

}  // namespace amalgam::detail
