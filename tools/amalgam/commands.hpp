#pragma once

#include <CLI/CLI.hpp>

namespace amalgam::tool {

/// Each adds its sub-command to `app`; when that was chosen, CLI11 runs its callback, which
/// throws amalgam::error for what the user should read, or exit_code to end quietly.
void add_info(CLI::App& app);       ///< What this machine and build can do.
void add_ping(CLI::App& app);       ///< Round trips to an engine elsewhere.
void add_perf(CLI::App& app);       ///< Latency, rate and bandwidth over one transport.
void add_run(CLI::App& app);        ///< Starts the groups of a flow program.
void add_directory(CLI::App& app);  ///< The directory of a host.
void add_find(CLI::App& app);       ///< Resources by attribute.
void add_inject(CLI::App& app);     ///< Images of code.

/// Thrown by a sub-command that has already said what there is to say.
struct exit_code {
    int value;
};

}  // namespace amalgam::tool
