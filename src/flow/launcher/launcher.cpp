#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/flow/launcher.hpp>
#include <amalgam/rpc/metrics_server.hpp>

#include "flow/checkpoints/run_checkpoints.hpp"
#include "flow/launcher/address_exchange.hpp"
#include "flow/launcher/guarded.hpp"
#include "flow/launcher/run_keys.hpp"
#include "flow/launcher/supervisor.hpp"

namespace amalgam {
namespace {

void check(const launch_options& options) {
    std::vector<std::string> names;
    for (const group_config& group : options.config.groups)
        names.push_back(group.name);
    for (const std::string& shown : options.view)
        if (options.config.find(shown) == nullptr)
            throw error(errc::invalid, fmt::format("--view names the group \"{}\", which the "
                                                   "config does not have, expected some of: {}",
                                                   shown, fmt::join(names, ", ")));
    for (const group_config& group : options.config.groups)
        for (const std::string& endpoint : group.endpoints)
            if (uri::parse(endpoint).scheme == "loop")
                throw error(
                    errc::invalid,
                    fmt::format("groups.{}.endpoint is \"{}\", which stays inside one process, "
                                "expected one that reaches other processes; example: \"shm://\"",
                                group.name, endpoint));
    if (options.command.empty())
        throw error(errc::invalid,
                    "there is no program to run, expected one after --; "
                    "example: amalgam run -c config.json -- ./wordcount text.txt");
}

bool any(const flow_config& config, bool on_a_host) {
    for (const group_config& group : config.groups)
        for (std::size_t i = 0; i < group.replicas(); ++i)
            if (group.host(i).empty() != on_a_host) return true;
    return false;
}

/// Processes with mpi+static endpoints find each other only as ranks.
void check_needs_no_ranks(const launch_options& options) {
    for (const group_config& group : options.config.groups)
        for (const std::string& endpoint : group.endpoints)
            if (uri::parse(endpoint).scheme == "mpi")
                throw error(errc::invalid,
                            fmt::format("groups.{}.endpoint is \"{}\", which is only for processes "
                                        "that mpirun starts, expected a start by mpirun; example: "
                                        "mpirun -n {} amalgam run -c config.json -- {}",
                                        group.name, endpoint, detail::process_count(options.config),
                                        fmt::join(options.command, " ")));
}

/// Inside mpirun or srun: becomes this rank's process. They start and end the others, and show
/// their output.
[[noreturn]] void become_rank(const launch_options& options, std::size_t rank) {
    const auto [index, replica] = detail::nth_process(options.config, rank);
    const group_config& group = options.config.groups[index];
    const std::string file = detail::find_program(options.command.front()).value();
    const auto& view = options.view;
    if (!view.empty() && std::find(view.begin(), view.end(), group.name) == view.end()) {
        const int nothing = ::open("/dev/null", O_WRONLY);
        ::dup2(nothing, STDOUT_FILENO);
        ::dup2(nothing, STDERR_FILENO);
    }
    ::setenv("AMALGAM_CONFIG", to_json(options.config).c_str(), 1);
    if (options.stats.count() > 0) ::setenv("AMALGAM_STATS", "1", 1);
    detail::become(file, options.command, group, replica);
}

/// Before anything is started; the supervisor listens there once all is.
void check_metrics_address(const std::string& address) {
    try {
        const metrics_server brief([] { return metric_snapshot(); }, address);
    } catch (const error& why) {
        throw error(why.code(), fmt::format("--metrics: {}", why.what()));
    }
}

}  // namespace

int launch(const launch_options& asked) {
    check(asked);
    launch_options options = asked;
    if (options.insecure) options.config = detail::without_keys(std::move(options.config));
    // A single rank starts everything itself, as in a shell from srun.
    if (const detail::job_rank here = detail::job_rank_from_environment(); here.size > 1) {
        if (!options.checkpoints.empty())
            throw error(errc::unsupported,
                        "--checkpoints is given within mpirun or srun, which start the processes, "
                        "expected a run that amalgam starts itself");
        if (!options.web.empty())
            throw error(
                errc::unsupported,
                "--web is given within mpirun or srun, which start the processes, expected "
                "a run that amalgam starts itself; --stats prints the numbers of each rank");
        try {
            detail::check_rank_count(here, options.config, "the config");
        } catch (const detail::told_error&) {
            return 2;
        }
        if (!options.metrics.empty()) {
            if (here.rank != 0) return 2;
            throw error(errc::invalid,
                        "--metrics shows the processes that `amalgam run` starts itself, not the "
                        "ranks of mpirun or srun; set AMALGAM_METRICS for those, as in "
                        "AMALGAM_METRICS=127.0.0.1:0 mpirun -n 3 amalgam run -c c.json -- program");
        }
        become_rank(options, here.rank);
    }
    if (!options.metrics.empty()) check_metrics_address(options.metrics);
    if (!options.insecure) options.config = detail::with_keys(std::move(options.config));
    check_needs_no_ranks(options);
    detail::collected_report::check(options.report_file);
    // Remote hosts look for the program themselves.
    std::string program;
    if (any(options.config, false)) program = detail::find_program(options.command.front()).value();
    if (any(options.config, true))
        (void)detail::find_program(options.ssh.empty() ? "" : options.ssh.front()).value();
    detail::run_checkpoints checkpoints(options);
    return detail::run_guarded([&](unique_fd guard) {
        return detail::supervisor(options, program, std::move(guard), checkpoints).run();
    });
}

}  // namespace amalgam
