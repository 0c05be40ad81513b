#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/launcher.hpp>

#include "flow/launcher/control.hpp"
#include "flow/launcher/output.hpp"

namespace amalgam::detail {

/// One process of one group, from start until reaped.
struct launched_process {
    std::string label;  ///< "G2", or "G2.1"
    std::size_t group;
    std::size_t replica;
    std::string where;  ///< "pid 4711", or "on node7"
    pid_t pid = -1;     ///< On a host: of its local stand-in.
    bool running = false;
    int wait_status = 0;  ///< From waitpid(), once not running.
    int end_order = 0;    ///< 1 for the first to end.

    unique_fd out, err;  ///< Its standard output and error; closed at end of file.
    line_prefixer out_lines, err_lines;
    unique_fd control;
    control_line talk{-1};

    std::string key;         ///< Fingerprint of its key, if the run makes keys.
    bool ready = false;      ///< It reported that its graph fits.
    std::string address;     ///< Reported with it.
    std::string graph;       ///< Reported with it.
    std::string last_words;  ///< Why it is about to end, if it reported that.
    bool because_of_other = false;

    bool failed() const noexcept { return !running && wait_status != 0; }
};

/// "exit code 3" or "signal 9 (Killed)".
std::string describe_end(int wait_status);
/// As a shell reports it: the exit code, or 128 + the signal.
int exit_code_of(int wait_status) noexcept;

/// The file that running `name` would start; searches PATH for a name without a slash.
/// Failure: `not_found` with a sentence.
result<std::string> find_program(const std::string& name);

/// Replaces this process by replica `replica` of `group`: `command`, found at `file`.
[[noreturn]] void become(const std::string& file, const std::vector<std::string>& command,
                         const group_config& group, std::size_t replica);

/// Starts replica `replica` of group `group`: the command, found at `file`, or on a host its local
/// stand-in. It runs in its own process group and dies with this process; it waits for the welcome
/// on its control line.
/// Failure: throws error{no_memory} if the system has no process or descriptor left.
launched_process start_process(const launch_options& options, std::size_t group,
                               std::size_t replica, const std::string& file, bool shown);

}  // namespace amalgam::detail
