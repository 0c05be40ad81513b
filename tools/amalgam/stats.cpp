#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "call/shown.hpp"
#include "commands.hpp"
#include "credentials_option.hpp"

namespace amalgam::tool {
namespace {

struct stats_options {
    std::vector<std::string> uris;
    std::string credentials;
    std::string filter;
    bool json = false;
    bool prometheus = false;
    double watch = 0;
    unsigned count = 0;
    unsigned timeout_ms = 5000;
};

/// `of`: empty for one engine alone.
void print(const metric_snapshot& all, const std::string& of, const stats_options& options) {
    if (options.prometheus) {
        fmt::print("{}", to_prometheus(all, options.filter));
    } else if (options.json) {
        const std::string text = to_json(all, options.filter);
        if (of.empty())
            fmt::print("{}\n", text);
        else
            fmt::print("{{\"engine\":{},{}\n", nlohmann::json(of).dump(),
                       std::string_view(text).substr(1));
    } else {
        fmt::print("{}{}", of.empty() ? of : of + ":\n", to_text(all, options.filter));
    }
    std::fflush(stdout);
}

/// Exit code 0: all engines answered in the last round; 1: some did not.
void stats(const stats_options& options) {
    std::vector<std::string> ports, uris;
    for (const std::string& each : options.uris) {
        uris.push_back(
            of_argument("uri", [&] { return with_credentials("uri", each, options.credentials); }));
        const std::string one = client_uri(uri::parse(uris.back()));
        if (std::find(ports.begin(), ports.end(), one) == ports.end()) ports.push_back(one);
    }
    engine client(ports, {.name = "stats"});
    const unsigned rounds = options.watch > 0 ? options.count : 1;  // 0: without end.
    bool all_answered = true;
    for (unsigned round = 1;; ++round) {
        all_answered = true;
        for (std::size_t i = 0; i < uris.size(); ++i) {
            try {
                const peer there = of_argument("uri", [&] { return client.lookup(uris[i]); });
                const std::string of = uris.size() > 1 ? shown(options.uris[i]) : std::string();
                print(read_metrics(client, there, std::chrono::milliseconds(options.timeout_ms)),
                      of, options);
            } catch (const error& why) {
                if (uris.size() == 1 && options.watch <= 0) throw;
                std::fprintf(stderr, "amalgam: %s: %s\n", shown(options.uris[i]).c_str(),
                             shown(why.what(), 8192).c_str());
                all_answered = false;
            }
        }
        if (round == rounds) break;
        if (!options.json) fmt::print("\n");
        std::this_thread::sleep_for(std::chrono::duration<double>(options.watch));
    }
    if (!all_answered) throw exit_code{1};
}

}  // namespace

void add_stats(CLI::App& app) {
    auto options = std::make_shared<stats_options>();
    auto* command = app.add_subcommand(
        "stats",
        "Show what engines count, if they offer it by am::offer_metrics(); exit code 1 if one "
        "does not answer");
    command->footer("example: amalgam stats tcp://127.0.0.1:7000 --filter rpc_");
    command->add_option("uri", options->uris, "The engines' addresses")
        ->check(CLI::Validator(&refusal_of_address, ""))
        ->required();
    add_credentials(*command, options->credentials);
    command->add_option("--filter", options->filter, "Only numbers whose names contain this");
    command->add_option("--timeout", options->timeout_ms, "Milliseconds to wait for each answer")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
    CLI::Option* const json =
        command->add_flag("--json", options->json, "Print JSON, a line for each engine");
    command
        ->add_flag("--prometheus", options->prometheus,
                   "Print the text format of Prometheus, for one engine")
        ->excludes(json);
    CLI::Option* const watch =
        command->add_option("--watch", options->watch, "Again every so many seconds")
            ->check(seconds(0.1, 3600));
    command->add_option("--count", options->count, "With --watch: end after so many times")
        ->check(CLI::Range(1, 1000000))
        ->needs(watch);
    command->callback([options] {
        if (options->prometheus && options->uris.size() > 1) {
            throw CLI::ValidationError("--prometheus",
                                       "its format has no place for several engines, expected "
                                       "one address");
        }
        try {
            stats(*options);
        } catch (const error& why) {  // May be the text of the peer.
            constexpr std::size_t most = 8192;
            throw error(why.code(), shown(why.what(), most));
        }
    });
}

}  // namespace amalgam::tool
