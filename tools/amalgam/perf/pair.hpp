#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::perf {

/// A line-based channel between the two processes of a measurement.
///
/// Failure: throws error{disconnected} if the other process ended, error{handler_failed} with its
///          sentence if it failed.
class channel {
public:
    explicit channel(unique_fd fd) : fd_(std::move(fd)) {}

    void write_line(const std::string& line);
    std::string read_line();
    /// Makes the other side's read_line() throw, once it gets there.
    void write_failure(std::string_view sentence) noexcept;
    /// Tells the other side to end, and waits for that; returns its failure if not read yet, or
    /// empty.
    std::string last_failure();
    /// Whether the other side closed its end. Cost: one system call.
    bool closed() const;

private:
    unique_fd fd_;
};

/// Environment variable with the name of the socket between the two ranks of an mpirun; an abstract
/// socket.
inline constexpr const char* ranks_variable = "AMALGAM_PERF_RANKS";

/// Runs `peer` in a forked process, pinned to the second processor unless told otherwise, and pins
/// this process to the first. The destructor tells the peer to end and reaps it; prints a failure
/// of the peer that was not read before to standard error.
///
/// If ranks_variable is set, the peer is rank 1: there the constructor runs `peer`, and ends the
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
    pid_t pid_ = -1;  ///< -1: a rank, not reaped here.
};

/// Pins the calling process to the n-th processor it may use; false if it has fewer.
bool pin_to_processor(int n);

}  // namespace amalgam::perf
