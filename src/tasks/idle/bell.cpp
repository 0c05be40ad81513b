#include "tasks/idle/bell.hpp"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {
struct bell_shelf {
    std::mutex lock;
    pid_t process = 0;       // owner of the eventfds: a fork() child must not ring its parent's
    bell* silent = nullptr;  // without an eventfd
    bell* with_fd = nullptr;
};
constinit bell_shelf shelf;
static_assert(std::is_trivially_destructible_v<bell_shelf>, "late ringers need it to the end");
}  // namespace

void bell::strike() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

void bell::drain() noexcept {
    std::uint64_t rings;
    [[maybe_unused]] const auto got = ::read(fd, &rings, sizeof rings);
}

bell& bell::take(bool can_sleep) {
    {
        const std::lock_guard hold(shelf.lock);
        const pid_t here = ::getpid();
        if (std::exchange(shelf.process, here) != here) shelf.with_fd = nullptr;
        bell*& list = can_sleep ? shelf.with_fd : shelf.silent;
        if (list != nullptr) {
            bell& found = *list;
            list = found.next;
            return found;
        }
    }
    auto made = std::make_unique<bell>();
    made->fd = can_sleep ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (can_sleep && made->fd < 0) {
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for an execution stream's eventfd; raise the limit on "
                    "open files (ulimit -n) or use fewer streams");
    }
    return *made.release();
}

std::mutex& bell::shelf_lock() noexcept {
    return shelf.lock;
}

void bell::give_back(bell& used) noexcept {
    const std::lock_guard hold(shelf.lock);
    bell*& list = used.fd >= 0 ? shelf.with_fd : shelf.silent;
    used.next = list;
    list = &used;
}

}  // namespace amalgam::detail
