#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/uri.hpp>

#include "commands.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {

std::span<const perf_test> all_tests() {
    static constexpr perf_test tests[] = {
        {"message-latency", "full round trip of a message", 8, 1, &message_latency},
        {"rpc-latency", "full round trip of a typed call, handled by a ULT", 8, 1, &rpc_latency},
        {"rpc-rate", "typed calls with several in flight", 64, 16, &rpc_rate},
        {"put-bandwidth", "one-sided writes", 1 << 20, 4, &put_bandwidth},
        {"get-bandwidth", "one-sided reads", 1 << 20, 4, &get_bandwidth},
        {"put-block-bandwidth", "one-sided writes between allocated blocks", 1 << 20, 1,
         &put_block_bandwidth},
        {"get-block-bandwidth", "one-sided reads between allocated blocks", 1 << 20, 1,
         &get_block_bandwidth},
        {"bulk-pull", "bulks of another process read", 1 << 20, 4, &bulk_pull},
        {"bulk-pull-pooled", "likewise, between buffers of caches", 1 << 20, 4, &bulk_pull_pooled},
        {"bulk-push", "bulks of another process written", 1 << 20, 4, &bulk_push},
        {"stream-rate", "items through a flow from one process to another", 64, 1, &stream_rate}};
    return tests;
}

}  // namespace amalgam::perf

namespace amalgam::tool {
namespace {

struct perf_options {
    std::string test;
    perf::request asked{.uri = "shm://"};
    bool json = false;
};

std::string names_of_tests() {
    std::string names;
    for (const auto& one : perf::all_tests())
        names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

perf::measurement run_one(const perf::perf_test& test, const perf_options& options) {
    perf::request asked = options.asked;
    if (asked.size_bytes == 0) asked.size_bytes = test.default_size_bytes;
    if (asked.depth == 0) asked.depth = test.default_depth;
    perf::measurement m = test.run(asked);
    m.test = test.name;
    m.uri = asked.uri;
    m.size_bytes = asked.size_bytes;
    m.depth = asked.depth;
    return m;
}

void perf_command(const perf_options& options) {
    (void)parse_uri(options.asked.uri).value();  // A wrong one is told here, before anything forks.
    bool found = false;
    for (const auto& test : perf::all_tests()) {
        if (options.test != "all" && options.test != test.name) continue;
        const perf::measurement m = run_one(test, options);
        if (!std::exchange(found, true) && !options.json) fmt::print("{}\n", perf::table_head());
        fmt::print("{}\n", options.json ? perf::to_json(m) : perf::table_row(m));
        std::fflush(stdout);
    }
    if (!found)
        throw error(errc::not_found,
                    fmt::format("there is no test \"{}\"; expected all or one of: {}; example: "
                                "amalgam perf rpc-latency --uri shm://",
                                options.test, names_of_tests()));
}

}  // namespace

void add_perf(CLI::App& app) {
    auto options = std::make_shared<perf_options>();
    auto* command = app.add_subcommand(
        "perf", "Measure one transport between this process and a peer it forks, both pinned");
    command->footer("example: amalgam perf rpc-latency --uri shm://");
    command->add_option("test", options->test, "all, or one of: " + names_of_tests())->required();
    command->add_option("--uri", options->asked.uri, "Where the peer listens")
        ->capture_default_str();
    command->add_option("--size", options->asked.size_bytes, "Bytes per operation")
        ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 30));
    command->add_option("--depth", options->asked.depth, "Operations in flight")
        ->check(CLI::Range(1, 4096));
    command->add_option("--seconds", options->asked.seconds, "How long to measure")
        ->check(CLI::Range(0.01, 3600.0))
        ->capture_default_str();
    command->add_flag("--json", options->json, "One JSON object a line");
    command->callback([options] { perf_command(*options); });
}

}  // namespace amalgam::tool
