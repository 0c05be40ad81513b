#include <thread>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>

namespace amalgam::detail {

void spin_lock::lock_slow() noexcept {
    do {
        for (int looks = 0; busy_.load(std::memory_order_relaxed); ++looks) {
            if (looks < 64) {
                cpu_relax();
            } else {
                std::this_thread::yield();  // the holder's thread was preempted
            }
        }
    } while (busy_.exchange(true, std::memory_order_acquire));
}

}  // namespace amalgam::detail
