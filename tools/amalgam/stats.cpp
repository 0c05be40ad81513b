#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/metrics.hpp>

#include "call/shown.hpp"
#include "commands.hpp"
#include "stats/number_source.hpp"

namespace amalgam::tool {
namespace {

struct stats_options {
    number_options whose;
    std::string filter;
    bool json = false;
    bool prometheus = false;
    double watch = 0;
    unsigned count = 0;

    /// All in one, with labels, instead of one after the other.
    bool merges() const noexcept { return whose.of_run() || whose.of_directory(); }
};

/// `of`: empty for one engine alone, and for all in one.
void print(const metric_snapshot& all, const std::string& of, const stats_options& options) {
    if (options.prometheus) {
        fmt::print("{}", to_prometheus(all, options.filter));
    } else if (options.json) {
        const std::string text = shown_json(to_json(all, options.filter));
        if (of.empty())
            fmt::print("{}\n", text);
        else
            fmt::print("{{\"engine\":{},{}\n", nlohmann::json(of).dump(),
                       std::string_view(text).substr(1));
    } else {
        fmt::print("{}{}", of.empty() ? of : of + ":\n", to_text(all, options.filter));
    }
}

/// Returns whether all answered.
bool print_round(const numbers_told& told, const stats_options& options) {
    if (options.merges()) {
        print(told.merged(), "", options);
    } else {
        const bool one = options.whose.uris.size() == 1;
        for (const numbers_told::process& each : told.processes)
            print(each.numbers, one ? std::string() : shown(each.name), options);
    }
    std::fflush(stdout);
    for (const std::string& each : told.silent)
        std::fprintf(stderr, "amalgam: %s\n", each.c_str());
    return told.silent.empty();
}

/// Exit code 0: all answered in the last round; 1: some did not.
void stats(const stats_options& options) {
    const auto source = open_numbers(options.whose);
    const unsigned rounds = options.watch > 0 ? options.count : 1;  // 0: without end.
    bool all_answered = true;
    for (unsigned round = 1;; ++round) {
        try {
            all_answered = print_round(source->read(), options);
        } catch (const error& why) {
            if (options.watch <= 0) throw;
            std::fprintf(stderr, "amalgam: %s\n", shown(why.what(), 8192).c_str());
            all_answered = false;
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
        "Show what engines count, if they offer it by am::offer_metrics(), or all processes of a "
        "run; exit code 1 if one does not answer");
    command->footer("example: amalgam stats tcp://127.0.0.1:7000 --filter rpc_");
    add_numbers(*command, options->whose);
    command->add_option("--filter", options->filter, "Only numbers whose names contain this");
    CLI::Option* const json =
        command->add_flag("--json", options->json, "Print JSON, a line for each engine");
    command
        ->add_flag("--prometheus", options->prometheus,
                   "Print the text format of Prometheus, for one engine, a run or a directory")
        ->excludes(json);
    CLI::Option* const watch =
        command->add_option("--watch", options->watch, "Again every so many seconds")
            ->check(seconds(0.1, 3600));
    command->add_option("--count", options->count, "With --watch: end after so many times")
        ->check(CLI::Range(1, 1000000))
        ->needs(watch);
    command->callback([options] {
        check(options->whose);
        if (options->prometheus && options->whose.uris.size() > 1) {
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
