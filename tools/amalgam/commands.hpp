#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include <amalgam/core/status.hpp>

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

/// What `work()` returns; where it finds the argument `name` malformed, the command line is wrong.
template <typename Work>
auto of_argument(const std::string& name, Work work) {
    try {
        return work();
    } catch (const error& why) {
        if (why.code() != errc::invalid && why.code() != errc::too_large) throw;
        throw CLI::ValidationError(name, why.what());
    }
}

/// Thrown by a sub-command that has already said what there is to say.
struct exit_code {
    int value;
};

}  // namespace amalgam::tool
