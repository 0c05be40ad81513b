#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/engine.hpp>

#include "commands.hpp"
#include "credentials_option.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct ping_options {
    std::vector<std::string> uris;
    std::string credentials;
    unsigned count = 4;
    unsigned interval_ms = 200;
    unsigned timeout_ms = 1000;
    bool json = false;
};

/// Exit code 0: every call was answered in time; 1: some were not.
void ping(const ping_options& options) {
    std::vector<std::string> ports, uris;
    for (const std::string& each : options.uris) {
        uris.push_back(with_credentials("uri", each, options.credentials));
        const std::string one = client_uri(uri::parse(uris.back()));
        if (std::find(ports.begin(), ports.end(), one) == ports.end()) ports.push_back(one);
    }
    engine client(ports, {.name = "ping"});
    const bool several = uris.size() > 1;  // Addresses of one engine.
    const auto echo = client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");

    double best = 0, worst = 0, sum = 0;
    unsigned answered = 0;
    peer target = of_argument(
        "uri", [&] { return several ? client.lookup(uris) : client.lookup(uris.front()); });
    std::string name = target.address();
    if (several && !options.json) fmt::print("{}\n", target.explain());
    for (unsigned i = 0; i < options.count; ++i) {
        if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(options.interval_ms));
        const auto start = clock::steady().now();
        const auto answer =
            echo.on(target).within(std::chrono::milliseconds(options.timeout_ms)).try_call(i);
        const double us =
            std::chrono::duration<double, std::micro>(clock::steady().now() - start).count();
        if (!answer) {
            if (options.json)
                print_json({{"address", name},
                            {"call", i + 1},
                            {"error", to_string(answer.code())},
                            {"sentence", answer.sentence()}});
            else
                fmt::print("{}: call {}: {}\n", name, i + 1, answer.sentence());
            if (answer.code() == errc::disconnected || answer.code() == errc::unreachable)
                if (const result<peer> again =
                        several ? client.try_lookup(uris) : client.try_lookup(name)) {
                    target = *again;
                    name = target.address();
                }
        } else {
            if (options.json)
                print_json({{"address", name}, {"call", i + 1}, {"us", us}});
            else
                fmt::print("{}: call {}: {:.1f} us\n", name, i + 1, us);
            best = answered == 0 ? us : std::min(best, us);
            worst = std::max(worst, us);
            sum += us;
            ++answered;
        }
        std::fflush(stdout);
    }
    if (options.json) {
        json_object all{{"calls", options.count}, {"answered", answered}};
        if (answered != 0)
            all.update({{"best_us", best}, {"mean_us", sum / answered}, {"worst_us", worst}});
        if (several) all["explanation"] = target.explain();
        print_json(all);
    } else {
        fmt::print("{} of {} calls answered", answered, options.count);
        if (answered != 0)
            fmt::print("; best {:.1f} us, mean {:.1f} us, worst {:.1f} us", best, sum / answered,
                       worst);
        fmt::print("\n");
    }
    if (answered != options.count) throw exit_code{1};
}

}  // namespace

void add_ping(CLI::App& app) {
    auto options = std::make_shared<ping_options>();
    auto* command = app.add_subcommand(
        "ping",
        "Call an engine and show the round-trip times; exit code 1 if a call is not answered");
    command->footer("example: amalgam ping tcp://127.0.0.1:7000");
    command
        ->add_option("uri", options->uris,
                     "The engine's address; given several, as listed by engine::addresses(), also "
                     "reports which is used and why")
        ->check(CLI::Validator(&refusal_of_address, ""))
        ->required();
    add_credentials(*command, options->credentials);
    command->add_option("--count", options->count, "Number of calls")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    command->add_option("--interval", options->interval_ms, "Milliseconds between calls")
        ->check(CLI::Range(0, 3600000))
        ->capture_default_str();
    command->add_option("--timeout", options->timeout_ms, "Milliseconds to wait for an answer")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
    add_json(*command, options->json, "call, and one for all of them");
    command->callback([options] { ping(*options); });
}

}  // namespace amalgam::tool
