#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/launcher.hpp>

#include "commands.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct run_options {
    std::string config;
    std::vector<std::string> view;
    std::vector<std::string> command;
    double grace_s = 3;
    double limit_s = 0;
    bool only_show = false;
    bool json = false;
    double stats_s = 0;
    std::string report_file;
    std::string metrics;
    std::string web;
    std::string checkpoints;
    double checkpoint_every_s = 0;
    unsigned restarts = 0;
    bool from_start = false;
    bool resume = false;
    std::string ssh = "ssh";
    std::string remote_amalgam;
    double silence_s = 30;
    bool insecure = false;
    bool agent = false;
};

std::chrono::milliseconds milliseconds(double seconds) {
    if (seconds <= 0) return {};
    return std::chrono::milliseconds(std::max(1L, std::lround(seconds * 1000)));
}

/// What would be started.
int show(const launch_options& options, bool json) {
    for (const group_config& group : options.config.groups) {
        for (std::size_t i = 0; i != group.replicas(); ++i) {
            const std::string host = group.host(i);
            if (json) {
                std::vector<std::string> command = options.command;
                command.insert(command.end(), group.arguments.begin(), group.arguments.end());
                print_json({{"label", process_label(group, i)},
                            {"group", group.name},
                            {"replica", i},
                            {"endpoint", group.endpoints[i]},
                            {"host", host},
                            {"pre_command", group.pre_command},
                            {"command", command}});
                continue;
            }
            fmt::print("[{}] {}{}{}{} {}\n", process_label(group, i), host.empty() ? "" : "on ",
                       host, host.empty() ? "" : ": ",
                       group.pre_command + (group.pre_command.empty() ? "" : " ") +
                           fmt::format("{}", fmt::join(options.command, " ")),
                       fmt::join(group.arguments, " "));
        }
    }
    return 0;
}

int launch_all(const run_options& options) {
    launch_options launched;
    launched.config = load_flow_config(options.config).value();
    launched.command = options.command;
    launched.view = options.view;
    launched.grace = milliseconds(options.grace_s);
    launched.limit = milliseconds(options.limit_s);
    launched.stats = milliseconds(options.stats_s);
    launched.report_file = options.report_file;
    launched.metrics = options.metrics;
    launched.web = options.web;
    launched.checkpoints = options.checkpoints;
    launched.checkpoint_every = milliseconds(options.checkpoint_every_s);
    launched.restarts = options.restarts;
    launched.restart_from_start = options.from_start;
    launched.resume = options.resume;
    launched.ssh = CLI::detail::split_up(options.ssh);
    launched.remote_amalgam = options.remote_amalgam.empty()
                                  ? std::filesystem::read_symlink("/proc/self/exe").string()
                                  : options.remote_amalgam;
    launched.host_silence = milliseconds(options.silence_s);
    launched.insecure = options.insecure;
    if (options.only_show) return show(launched, options.json);
    return launch(launched);
}

void run(const run_options& options) {
    if (options.agent) throw exit_code{serve_launcher()};
    try {
        throw exit_code{launch_all(options)};
    } catch (const error& refused) {  // Before anything was started.
        fmt::print(stderr, "amalgam: {}\n", refused.what());
        throw exit_code{2};
    }
}

}  // namespace

void add_run(CLI::App& app) {
    auto options = std::make_shared<run_options>();
    CLI::App* sub = app.add_subcommand("run", "Start every group of a flow program");
    sub->footer("example: amalgam run --config groups.json -- ./program");
    sub->add_option("-c,--config", options->config, "JSON file that names each group's endpoint");
    sub->add_option("--view", options->view, "Show the output of these groups only: G1,G2")
        ->delimiter(',');
    sub->add_option("--grace", options->grace_s,
                    "Seconds that the other groups have to exit by themselves after one has failed")
        ->check(seconds(0, 86400))
        ->capture_default_str();
    sub->add_option("--limit", options->limit_s,
                    "Seconds after which the run is ended as failed; 0: never")
        ->check(seconds(0, 86400))
        ->capture_default_str();
    CLI::Option* const show = sub->add_flag("--show", options->only_show,
                                            "Print what would be started, and start nothing");
    add_json(*sub, options->json, "process that --show tells of")->needs(show);
    sub->add_option("--stats", options->stats_s,
                    "Report progress and bottlenecks at this interval, and each node's statistics "
                    "at the end; every second if no number is given")
        ->check(seconds(0.001, 86400))
        ->expected(0, 1)
        ->default_str("1");
    sub->add_option("--report", options->report_file,
                    "Write each node's statistics as JSON to this file at the end");
    sub->add_option("--metrics", options->metrics,
                    "Tell the numbers of all processes by HTTP for Prometheus, at this loopback "
                    "address; port 0 chooses one: 127.0.0.1:9464. For other hosts: "
                    "\"0.0.0.0:9464?credentials=node7&token=FILE\"")
        ->envname("AMALGAM_METRICS");
    sub->add_option(
           "--web", options->web,
           "Serve a live page of the run at this loopback address, and print its URL; port "
           "0, or no address, chooses a port. For other hosts: "
           "\"0.0.0.0:8642?credentials=node7\", a key that `amalgam key new --p256` made")
        ->expected(0, 1)
        ->default_str("127.0.0.1:0");
    sub->add_option("--checkpoints", options->checkpoints,
                    "Save the state of all nodes in this folder, at a time when it fits together");
    sub->add_option("--checkpoint-every", options->checkpoint_every_s,
                    "Take a checkpoint every so many seconds; 0: only when asked for")
        ->check(seconds(0, 1e6))
        ->capture_default_str();
    sub->add_option("--restarts", options->restarts,
                    "When a process is lost, end the others and go on from the last complete "
                    "checkpoint, so many times at most")
        ->capture_default_str();
    sub->add_flag("--from-start", options->from_start,
                  "With --restarts: if no checkpoint is complete yet, begin from the start");
    sub->add_flag("--resume", options->resume,
                  "Go on from the last complete checkpoint of an earlier run in that folder");
    sub->add_option(
           "--ssh", options->ssh,
           "Command to reach a group's host: \"ssh -p 2222 -i key\"; must not ask for a password")
        ->capture_default_str();
    sub->add_option("--remote-amalgam", options->remote_amalgam,
                    "Path of amalgam on the hosts; default: as on this host");
    sub->add_option("--silence", options->silence_s,
                    "Seconds without a sign of life after which a host is considered lost")
        ->check(seconds(0.1, 86400))
        ->capture_default_str();
    sub->add_flag("--insecure", options->insecure,
                  "Make no keys for the run: nothing is encrypted, and whoever reaches a group's "
                  "endpoint may connect");
    sub->add_flag("--agent", options->agent)->group("");  // The remote end of --ssh.
    sub->add_option("program", options->command, "After --: the program and its arguments");
    sub->positionals_at_end();
    sub->callback([options, sub] {
        for (const char* needed : {"--config", "program"})
            if (!options->agent && sub->count(needed) == 0) throw CLI::RequiredError(needed);
        run(*options);
    });
}

}  // namespace amalgam::tool
