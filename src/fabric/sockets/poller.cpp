#include "fabric/sockets/poller.hpp"

#include <array>
#include <cerrno>

#include <sys/socket.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

poller::poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_)
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for a tcp port's epoll set; raise the limit on open "
                    "files (ulimit -n)");
}

bool poller::watch(int fd, event_source& source, std::uint32_t events) noexcept {
    epoll_event event{events, {&source}};
    return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void poller::change(int fd, event_source& source, std::uint32_t events) noexcept {
    epoll_event event{events, {&source}};
    ::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event);
}

void poller::forget(int fd) noexcept {
    if (is_inherited()) return;
    // Closing is not enough: a fork() child may hold the same connection open.
    epoll_event unused{};
    ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, &unused);
}

void poller::close(unique_fd& socket) noexcept {
    if (socket && !is_inherited()) {
        forget(socket.get());
        // Closing ends a connection only with its last copy.
        ::shutdown(socket.get(), SHUT_RDWR);
    }
    socket.reset();
}

void poller::poll() noexcept {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(fd_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i)
        static_cast<event_source*>(events[static_cast<std::size_t>(i)].data.ptr)
            ->ready(events[static_cast<std::size_t>(i)].events);
}

}  // namespace amalgam::detail
