#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::conformance {

/// One end of a two-way line between a test and its child: whole texts, in order.
///
/// Threads: one at a time.
class channel {
public:
    /// Longest text for say().
    static constexpr std::size_t max_bytes = 64 * 1024;

    explicit channel(unique_fd end) noexcept : end_(std::move(end)) {}

    /// Returns false if the other end is gone.
    bool say(std::string_view text);
    /// Waits for the next text. Failure: throws std::runtime_error if the other end is gone.
    std::string hear();
    /// The next text, if there is one. Failure: as hear().
    std::optional<std::string> overhear();
    /// Readable when there is something to read.
    int fd() const noexcept { return end_.get(); }

private:
    std::optional<std::string> read(int flags);

    unique_fd end_;
};

/// A child process of a test. Killed and reaped at the latest by the destructor, and by the kernel
/// if the test's process dies first.
///
/// Fork children before opening ports or starting threads: the child closes every descriptor but
/// its channel, yet shared mappings would stay.
///
/// Threads: one at a time; the thread that started it must outlive it.
/// Failure: std::system_error if the process cannot be started.
class child_process {
public:
    /// Runs `body` in a forked child. Exit code: the result of `body`; 1 if a gtest expectation
    /// failed in it; 125 if it threw.
    explicit child_process(const std::function<int(channel& parent)>& body);

    /// Runs a program (argv[0] is searched in PATH), and captures its output for output().
    static child_process run(const std::vector<std::string>& argv);

    child_process(child_process&& from) noexcept;
    child_process& operator=(child_process&&) = delete;
    ~child_process();

    pid_t pid() const noexcept { return pid_; }
    /// For a forked child; a child made by run() has none.
    channel& line() noexcept { return line_; }

    void kill();                    ///< SIGKILL, and waits for the end.
    void signal(int number) const;  ///< Does not wait.
    void freeze();                  ///< SIGSTOP, and waits until it is stopped.
    void wait_until_still();        ///< Until it is stopped, by itself or by us.
    void thaw();                    ///< SIGCONT.
    /// Waits for its end: the exit code, or 128 + the signal.
    int join();
    /// Reads the output of a program started by run() to the end, standard output and error
    /// together.
    std::string output();

private:
    child_process(pid_t pid, unique_fd line, unique_fd output) noexcept;

    pid_t pid_ = -1;
    std::optional<int> code_;  ///< Set once reaped.
    channel line_;
    unique_fd output_;
};

}  // namespace amalgam::conformance
