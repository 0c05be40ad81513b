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

/// One process of one group, from its start until it is reaped.
struct launched_process {
    std::string label;  ///< "G2", or "G2.1"
    std::size_t group;
    std::size_t replica;
    std::string where;  ///< "pid 4711", or "on node7"
    pid_t pid = -1;     ///< Of what stands for it here, when it is on a host.
    bool running = false;
    int wait_status = 0;  ///< As waitpid() gave it, once not running.
    int end_order = 0;    ///< 1 for the first to end.

    unique_fd out, err;  ///< Its standard output and error; closed here at their end.
    line_prefixer out_lines, err_lines;
    unique_fd control;
    control_line talk{-1};

    bool ready = false;      ///< It said so: its graph fits.
    std::string address;     ///< Said with it.
    std::string graph;       ///< Said with it.
    std::string last_words;  ///< Why it is about to end, if it said so.
    bool because_of_other = false;

    bool failed() const noexcept { return !running && wait_status != 0; }
};

/// "exit code 3" or "signal 9 (Killed)".
std::string describe_end(int wait_status);
/// What a shell would make of it: the exit code, or 128 + the signal.
int exit_code_of(int wait_status) noexcept;

/// The file that `name` would run, by PATH for a name without a slash.
/// Failure: `not_found` with a sentence.
result<std::string> find_program(const std::string& name);

/// Turns this process into replica `replica` of `group`: `command`, found at `file`.
[[noreturn]] void become(const std::string& file, const std::vector<std::string>& command,
                         const group_config& group, std::size_t replica);

/// Starts replica `replica` of group `group`: the command, found at `file`, or what stands for it
/// here when it is on a host. It runs in a process group of its own and dies with this process;
/// over its control line it waits for the welcome.
/// Failure: throws error{no_memory} when the system gives no process or descriptor.
launched_process start_process(const launch_options& options, std::size_t group,
                               std::size_t replica, const std::string& file, bool shown);

}  // namespace amalgam::detail
