#pragma once

#include <cstdint>

#include <sys/epoll.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// A descriptor's owner that a poller notifies.
class event_source {
public:
    /// `events`: EPOLLIN, EPOLLOUT … that occurred.
    virtual void ready(std::uint32_t events) noexcept = 0;

protected:
    ~event_source() = default;
};

/// An epoll set: many descriptors to sleep on as one.
///
/// A source must not move or be destroyed while poll() runs, even if forgotten meanwhile: an event
/// of the same batch may still be passed to it.
/// Threads: the port's thread.
/// Failure: the constructor throws error{no_memory} if no descriptor is available.
class poller {
public:
    poller();
    int fd() const noexcept { return fd_.get(); }

    /// False: errno says why.
    bool watch(int fd, event_source& source, std::uint32_t events) noexcept;
    /// Also reports current conditions again.
    void change(int fd, event_source& source, std::uint32_t events) noexcept;
    /// Does nothing if is_inherited(): the parent watches the same set.
    void forget(int fd) noexcept;
    /// Forgets a socket and closes it. A connection ends for the peer, and a listener for its
    /// callers, also while a child of fork() has copies; a child closes no more than its copy.
    void close(unique_fd& socket) noexcept;
    /// This process is a child of the one that made it.
    bool is_inherited() const noexcept { return forked_.is_in_child(); }

    /// Reports events; does not wait. Cost: one system call.
    void poll() noexcept;

private:
    const fork_check forked_;
    unique_fd fd_;
};

}  // namespace amalgam::detail
