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
    /// Longest text that say() takes.
    static constexpr std::size_t max_bytes = 64 * 1024;

    explicit channel(unique_fd end) noexcept : end_(std::move(end)) {}

    /// Returns false when nobody is there any more.
    bool say(std::string_view text);
    /// Waits for the next text. Failure: throws std::runtime_error when the other end is gone.
    std::string hear();
    /// The next text if one is there. Failure: as hear().
    std::optional<std::string> overhear();
    /// Readable when there is something to hear.
    int fd() const noexcept { return end_.get(); }

private:
    std::optional<std::string> read(int flags);

    unique_fd end_;
};

/// A process of a test's own, killed and reaped at the latest when this object ends, and by
/// the kernel when the test's process dies first.
///
/// Fork children before opening ports or starting threads: the child drops every descriptor
/// but its channel, yet shared mappings would stay.
///
/// Threads: one at a time; the thread that started it must outlive it.
/// Failure: std::system_error when the process cannot be started.
class child_process {
public:
    /// Runs `body` in a forked child. It ends with what `body` returns, or 1 when a gtest
    /// expectation failed in it, or 125 when an exception left it.
    explicit child_process(const std::function<int(channel& parent)>& body);

    /// Runs a program (argv[0] is looked for in PATH), its output caught for output().
    static child_process run(const std::vector<std::string>& argv);

    child_process(child_process&& from) noexcept;
    child_process& operator=(child_process&&) = delete;
    ~child_process();

    pid_t pid() const noexcept { return pid_; }
    /// Of a forked child; a child made by run() hears nothing.
    channel& line() noexcept { return line_; }

    void kill();                    ///< SIGKILL, and waits until it is gone.
    void signal(int number) const;  ///< Does not wait.
    void freeze();                  ///< SIGSTOP, and waits until it stands still.
    void wait_until_still();        ///< Until it stands still, stopped by itself or by us.
    void thaw();                    ///< SIGCONT.
    /// Waits for its end: the exit code, or 128 + the signal that ended it.
    int join();
    /// Reads what a program of run() wrote, standard output and error together, to its end.
    std::string output();

private:
    child_process(pid_t pid, unique_fd line, unique_fd output) noexcept;

    pid_t pid_ = -1;
    std::optional<int> code_;  ///< Once reaped.
    channel line_;
    unique_fd output_;
};

}  // namespace amalgam::conformance
