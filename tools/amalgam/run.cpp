#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/flow/launcher.hpp>

#include "commands.hpp"

namespace amalgam::tool {
namespace {

struct run_options {
    std::string config;
    std::vector<std::string> view;
    std::vector<std::string> command;
    double grace_s = 3;
};

void run(const run_options& options) {
    launch_options launched;
    launched.config = load_flow_config(options.config).value();
    launched.command = options.command;
    launched.view = options.view;
    launched.grace = std::chrono::milliseconds(static_cast<long>(options.grace_s * 1000));
    throw exit_code{launch(launched)};
}

}  // namespace

void add_run(CLI::App& app) {
    auto options = std::make_shared<run_options>();
    CLI::App* sub = app.add_subcommand("run", "Starts every group of a flow program here");
    sub->footer("example: amalgam run --config groups.json -- ./program");
    sub->add_option("-c,--config", options->config, "JSON file that names each group's endpoint")
        ->required();
    sub->add_option("--view", options->view, "Shows only these groups: G1,G2")->delimiter(',');
    sub->add_option("--grace", options->grace_s,
                    "Seconds the other groups get to end by themselves when one has failed")
        ->check(CLI::Range(0.0, 86400.0))
        ->capture_default_str();
    sub->add_option("program", options->command, "After --: the program and its arguments")
        ->required();
    sub->positionals_at_end();
    sub->callback([options] { run(*options); });
}

}  // namespace amalgam::tool
