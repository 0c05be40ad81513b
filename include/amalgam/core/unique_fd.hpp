#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace amalgam {

/// Owns a file descriptor and closes it.
///
/// Threads: like a plain value.
class unique_fd {
public:
    unique_fd() noexcept = default;                   ///< Holds none.
    explicit unique_fd(int fd) noexcept : fd_(fd) {}  ///< Takes `fd`; negative means none.
    unique_fd(unique_fd&& other) noexcept : fd_(other.release()) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    ~unique_fd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

    /// Gives the descriptor to the caller; holds none afterwards.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    /// Closes the current descriptor, then holds `fd`. Preserves errno, so error paths may call it.
    void reset(int fd = -1) noexcept {
        int old = std::exchange(fd_, fd);
        if (old < 0 || old == fd) return;
        int saved = errno;
        ::close(old);  // No retry on EINTR: Linux has already released the number.
        errno = saved;
    }

private:
    int fd_ = -1;
};

}  // namespace amalgam
