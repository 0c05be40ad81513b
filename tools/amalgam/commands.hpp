#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/uri.hpp>

namespace amalgam::tool {

/// Each adds its sub-command to `app`. If that is chosen, CLI11 runs its callback, which throws
/// amalgam::error to show to the user, or exit_code to end quietly.
void add_info(CLI::App& app);        ///< Capabilities of this machine and build.
void add_call(CLI::App& app);        ///< A procedure, with JSON.
void add_ping(CLI::App& app);        ///< Round trips to a remote engine.
void add_perf(CLI::App& app);        ///< Latency, rate and bandwidth over one transport.
void add_run(CLI::App& app);         ///< Starts the groups of a flow program.
void add_trace(CLI::App& app);       ///< A program, with a trace of what it does.
void add_directory(CLI::App& app);   ///< The directory of a host.
void add_find(CLI::App& app);        ///< Resources by attribute.
void add_inject(CLI::App& app);      ///< Images of code.
void add_key(CLI::App& app);         ///< Keys and certificates.
void add_stats(CLI::App& app);       ///< What engines count.
void add_top(CLI::App& app);         ///< The same, watched in the terminal.
void add_why(CLI::App& app);         ///< What hangs, and on what.
void add_man(CLI::App& app);         ///< Manual pages of all of these.
void add_completion(CLI::App& app);  ///< What shells need to complete them.

/// Whether the tool was started by the name of FastFlow's launcher, and what its arguments mean to
/// `amalgam run`. The latter throws exit_code, having said why.
bool is_dff_run(const char* program);
std::vector<std::string> run_of_dff_run(int argc, char** argv);

/// Returns the result of `work()`. If that finds the argument `name` malformed, reports a command
/// line error.
template <typename Work>
auto of_argument(const std::string& name, Work work) {
    try {
        return work();
    } catch (const error& why) {
        if (why.code() != errc::invalid && why.code() != errc::too_large) throw;
        throw CLI::ValidationError(name, why.what());
    }
}

/// Checks an option that is a number of seconds in this range; refuses nan.
inline CLI::Validator seconds(double least, double most) {
    return CLI::Validator(
        [=](const std::string& text) {
            double given = 0;
            const bool good =
                CLI::detail::lexical_cast(text, given) && given >= least && given <= most;
            return good ? std::string()
                        : fmt::format("\"{}\" is not a number of seconds from {} to {}", text,
                                      least, most);
        },
        fmt::format("SECONDS in [{} - {}]", least, most));
}

/// Checks an argument that is the address of another process.
inline std::string refusal_of_address(const std::string& text) {
    const result<uri> parsed = parse_uri(text);
    if (!parsed) return std::string(parsed.sentence());
    if (parsed->scheme != "loop") return {};
    return fmt::format("\"{}\" stays within one process; example: shm://server", text);
}

/// Thrown by a sub-command that has already printed its message.
struct exit_code {
    int value;
};

}  // namespace amalgam::tool
