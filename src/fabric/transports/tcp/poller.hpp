#pragma once

#include <cstdint>

#include <sys/epoll.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Something behind a descriptor that a poller watches.
class event_source {
public:
    /// `events`: EPOLLIN, EPOLLOUT … as they happened.
    virtual void ready(std::uint32_t events) noexcept = 0;

protected:
    ~event_source() = default;
};

/// An epoll set: one descriptor to sleep on for many.
///
/// A source must stay where it is while poll() runs, even when it was forgotten meanwhile: an
/// event of the same batch may still be told to it.
/// Threads: the port's.
/// Failure: the constructor throws error{no_memory} when there is no descriptor to be had.
class poller {
public:
    poller();
    int fd() const noexcept { return fd_.get(); }

    /// False: errno says why.
    bool watch(int fd, event_source& source, std::uint32_t events) noexcept;
    /// Also tells anew what is the case already.
    void change(int fd, event_source& source, std::uint32_t events) noexcept;
    void forget(int fd) noexcept;

    /// Tells what has happened; does not wait. Cost: one system call.
    void poll() noexcept;

private:
    unique_fd fd_;
};

}  // namespace amalgam::detail
