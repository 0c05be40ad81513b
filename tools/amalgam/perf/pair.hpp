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
    /// What the other side's next read_line() throws.
    void write_failure(std::string_view sentence);
    /// Whether the other side closed its end. Cost: one system call.
    bool closed() const;

private:
    unique_fd fd_;
};

/// Runs `peer` in a forked process, pinned to the second processor, and keeps this process on
/// the first. The destructor closes the channel, which tells the peer to end, and reaps it.
///
/// Precondition: this process has one thread.
class forked_peer {
public:
    explicit forked_peer(const std::function<void(channel&)>& peer);
    forked_peer(const forked_peer&) = delete;
    forked_peer& operator=(const forked_peer&) = delete;
    ~forked_peer();

    channel& talk() noexcept { return channel_; }

private:
    channel channel_{unique_fd{}};
    pid_t pid_ = -1;
};

/// Binds the calling process to the n-th processor it may use; false if it has fewer.
bool pin_to_processor(int n);

}  // namespace amalgam::perf
