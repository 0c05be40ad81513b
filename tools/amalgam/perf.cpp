#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/uri.hpp>

#include "commands.hpp"
#include "credentials_option.hpp"
#include "perf/comparison.hpp"
#include "perf/plot.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {

std::span<const perf_test> all_tests() {
    using enum figure;
    static constexpr perf_test tests[] = {
        {"message-latency", "full round trip of a message", 8, 1, &message_latency, time,
         "message-latency"},
        {"rpc-latency", "full round trip of a typed call, handled by a ULT", 8, 1, &rpc_latency,
         time, "message-latency"},
        {"rpc-rate", "typed calls with several in flight", 64, 16, &rpc_rate, rate, ""},
        {"post-rate", "one-way calls, inline handler", 8, 256, &post_rate, rate, "message-rate"},
        {"put-bandwidth", "one-sided writes", 1 << 20, 4, &put_bandwidth, bandwidth,
         "put-bandwidth"},
        {"get-bandwidth", "one-sided reads", 1 << 20, 4, &get_bandwidth, bandwidth,
         "get-bandwidth"},
        {"put-block-bandwidth", "one-sided writes between allocated blocks", 1 << 20, 1,
         &put_block_bandwidth, bandwidth, "put-block-bandwidth"},
        {"get-block-bandwidth", "one-sided reads between allocated blocks", 1 << 20, 1,
         &get_block_bandwidth, bandwidth, "get-block-bandwidth"},
        {"bulk-pull", "pulls of another process's bulks", 1 << 20, 4, &bulk_pull, bandwidth,
         "get-bandwidth"},
        {"bulk-pull-pooled", "pulls between buffers of bulk caches", 1 << 20, 4, &bulk_pull_pooled,
         bandwidth, "get-block-bandwidth"},
        {"bulk-push", "pushes into another process's bulks", 1 << 20, 4, &bulk_push, bandwidth,
         "put-bandwidth"},
        {"stream-rate", "items through a flow from one process to another", 64, 1, &stream_rate,
         rate, ""}};
    return tests;
}

}  // namespace amalgam::perf

namespace amalgam::tool {
namespace {

struct perf_options {
    std::string test;
    std::vector<std::string> uris{"shm://"};
    std::string credentials;
    perf::request asked;
    std::vector<std::string> vs;
    std::string plot;
    bool json = false;
};

std::string names_of_tests() {
    std::string names;
    for (const auto& one : perf::all_tests())
        names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

/// Each is empty if the argument is valid.
std::string refusal_of_test(const std::string& name) {
    if (name == "all") return "";
    for (const auto& one : perf::all_tests())
        if (one.name == name) return "";
    return fmt::format("unknown test \"{}\", expected all or one of: {}", name, names_of_tests());
}

std::string refusal_of_plot(const std::string& path) {
    if (path.ends_with(".svg")) return "";
    return fmt::format("\"{}\" does not end in .svg; example: perf.svg", path);
}

/// The tests, URIs and libraries of a command line, and the output of their results.
class perf_run {
public:
    explicit perf_run(const perf_options& options) : options_(options), compare_(options.vs) {}

    /// Runs and prints one measurement of ours and the peers'; `size_bytes` 0 means as requested.
    perf::comparison run(const perf::perf_test& test, const std::string& uri,
                         std::size_t size_bytes = 0) {
        perf::request asked = options_.asked;
        asked.uri = uri;
        if (size_bytes != 0) asked.size_bytes = size_bytes;
        if (asked.size_bytes == 0) asked.size_bytes = test.default_size_bytes;
        if (asked.depth == 0) asked.depth = test.default_depth;
        perf::comparison one = compare_.run(test, asked);
        show(test, one);
        return one;
    }

    /// One test by size: a line per URI and library.
    perf::plot_panel sweep(const perf::perf_test& test) {
        const bool time = test.shows == perf::figure::time;
        std::map<std::string, perf::plot_line> lines;
        std::vector<std::string> order;
        const auto add = [&](const std::string& name, const perf::measurement& m) {
            if (lines.emplace(name, perf::plot_line{name, {}}).second) order.push_back(name);
            auto& points = lines[name].points;
            const auto size = static_cast<double>(m.size_bytes);
            // Two URIs over one medium have the same peers.
            if (points.empty() || points.back().first < size)
                points.emplace_back(size, perf::figure_of(test, m));
        };
        for (const std::string& uri : options_.uris)
            for (std::size_t size = time ? 8 : 512; size <= (std::size_t{2} << 20); size *= 8) {
                const perf::comparison one = run(test, uri, size);
                add("amalgam " + uri, one.ours);
                for (const auto& peer : one.peers)
                    if (peer) add("bare " + peer->uri, *peer);
            }
        perf::plot_panel panel{std::string(test.name) + ": " + std::string(test.what),
                               time                               ? "round trip (us)"
                               : test.shows == perf::figure::rate ? "rate (1/s)"
                                                                  : "bandwidth (GiB/s)",
                               {}};
        for (const std::string& name : order)
            panel.lines.push_back(lines[name]);
        return panel;
    }

private:
    void show(const perf::perf_test& test, const perf::comparison& one) {
        if (!std::exchange(headed_, true) && !options_.json)
            fmt::print("{}\n", options_.vs.empty() ? perf::table_head() : compare_.table_head());
        if (options_.json) {
            fmt::print("{}\n", perf::to_json(one.ours));
            for (const auto& peer : one.peers)
                if (peer) fmt::print("{}\n", perf::to_json(*peer));
        } else {
            fmt::print("{}\n", options_.vs.empty() ? perf::table_row(one.ours)
                                                   : compare_.table_row(test, one));
        }
        std::fflush(stdout);
    }

    const perf_options& options_;
    perf::comparer compare_;
    bool headed_ = false;
};

bool is_drawn(const perf::perf_test& test, const perf_options& options) {
    // For `all`, only what users see of a transport; other tests are drawn if requested by name.
    return options.test == test.name || test.name == "rpc-latency" || test.name == "bulk-pull";
}

void perf_command(perf_options options) {
    for (std::string& uri : options.uris) {
        // Reports a malformed URI before anything forks.
        uri = with_credentials("--uri", uri, options.credentials);
        if (parse_uri(uri).value().scheme == "loop")
            throw error(errc::unsupported,
                        fmt::format("{} stays within one process, but a measurement needs two; "
                                    "example: amalgam perf {} --uri shm://",
                                    uri, options.test));
    }
    std::vector<const perf::perf_test*> chosen;
    for (const auto& test : perf::all_tests())
        if (options.test == "all" || options.test == test.name) chosen.push_back(&test);
    std::ofstream image;
    if (!options.plot.empty()) {
        image.open(options.plot);
        if (!image)
            throw error(errc::invalid,
                        fmt::format("cannot write to the file \"{}\"; example: --plot perf.svg",
                                    options.plot));
    }

    perf_run running(options);
    for (const perf::perf_test* test : chosen)
        for (const std::string& uri : options.uris)
            running.run(*test, uri);
    if (options.plot.empty()) return;
    std::vector<perf::plot_panel> panels;
    for (const perf::perf_test* test : chosen)
        if (is_drawn(*test, options)) panels.push_back(running.sweep(*test));
    image << perf::to_svg(panels) << std::flush;
    if (!image)
        throw error(errc::invalid,
                    fmt::format("cannot write all of the file \"{}\"", options.plot));
}

}  // namespace

void add_perf(CLI::App& app) {
    auto options = std::make_shared<perf_options>();
    auto* command = app.add_subcommand(
        "perf", "Measure one transport between this process and a peer it forks, both pinned");
    command->footer("example: amalgam perf all --uri shm:// --vs ucx,ofi,mpi --plot perf.svg");
    command->add_option("test", options->test, "all, or one of: " + names_of_tests())
        ->required()
        ->check(CLI::Validator(&refusal_of_test, ""));
    command->add_option("--uri", options->uris, "URI for the peer to listen on; may be repeated")
        ->expected(1)
        ->take_all()
        ->capture_default_str();
    add_credentials(*command, options->credentials);
    command
        ->add_option(
            "--vs", options->vs,
            "Libraries to compare with, measured by the programs amalgam-peer-NAME: ucx,ofi,mpi")
        ->delimiter(',');
    command
        ->add_option("--plot", options->plot,
                     "Plot latency and bandwidth by size to this SVG file, NAME.svg")
        ->check(CLI::Validator(&refusal_of_plot, ""));
    command->add_option("--size", options->asked.size_bytes, "Bytes per operation")
        ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 30));
    command->add_option("--depth", options->asked.depth, "Operations in flight")
        ->check(CLI::Range(1, 4096));
    command->add_option("--seconds", options->asked.seconds, "Duration of each measurement")
        ->check(seconds(0.01, 3600))
        ->capture_default_str();
    command->add_flag("--json", options->json, "Print one JSON object per line");
    command->callback([options] { perf_command(*options); });
}

}  // namespace amalgam::tool
