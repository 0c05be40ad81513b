#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::perf {

/// A line of text at a time between the two processes of a measurement.
///
/// Failure: throws error{disconnected} when the other process ended, error{handler_failed} with
/// its sentence when it failed.
class channel {
public:
    explicit channel(unique_fd fd) : fd_(std::move(fd)) {}

    void write_line(const std::string& line);
    std::string read_line();
    /// What the other side's read_line() throws, once it comes to it.
    void write_failure(std::string_view sentence) noexcept;
    /// Tells the other side to end, and waits until it did; the failure that it wrote and nobody
    /// has read, or nothing.
    std::string last_failure();
    /// Whether the other side closed its end. Cost: one system call.
    bool closed() const;

private:
    unique_fd fd_;
};

/// Names, in the environment, the socket by which the two ranks of an mpirun talk; as systems name
/// abstract sockets.
inline constexpr const char* ranks_variable = "AMALGAM_PERF_RANKS";

/// Runs `peer` in a forked process, pinned to the second processor unless told, and keeps this
/// process on the first. The destructor tells the peer to end and reaps it; a failure of the peer
/// that was not heard before goes to the standard error stream.
///
/// Where ranks_variable is set, the peer is rank 1: there the constructor runs `peer`, and ends the
/// process.
///
/// Precondition: this process has one thread.
class forked_peer {
public:
    explicit forked_peer(const std::function<void(channel&)>& peer, int processor = 1);
    forked_peer(const forked_peer&) = delete;
    forked_peer& operator=(const forked_peer&) = delete;
    ~forked_peer();

    channel& talk() noexcept { return channel_; }

private:
    void fork_peer(const std::function<void(channel&)>& peer, int processor);

    channel channel_{unique_fd{}};
    pid_t pid_ = -1;  ///< -1: a rank, which nobody here reaps.
};

/// Binds the calling process to the n-th processor it may use; false if it has fewer.
bool pin_to_processor(int n);

}  // namespace amalgam::perf
