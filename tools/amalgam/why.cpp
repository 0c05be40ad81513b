#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/wait_report.hpp>

#include "call/shown.hpp"
#include "commands.hpp"
#include "credentials_option.hpp"
#include "why/chains.hpp"
#include "why/outside.hpp"

namespace amalgam::tool {
namespace {

struct why_options {
    std::string uri;
    std::string credentials;
    unsigned timeout_ms = 5000;
    unsigned engines = 64;
    bool json = false;
};

/// An engine may lie.
wait_report no_more_than_promised(wait_report told) {
    constexpr std::size_t most_calls = 256, most_units = 1024;
    if (told.calls.size() > most_calls) told.calls.resize(most_calls);
    if (told.handlers.size() > most_calls) told.handlers.resize(most_calls);
    if (told.units.size() > most_units) told.units.resize(most_units);
    return told;
}

/// Asks engines by their addresses, each transport through a port of its own.
class asker {
public:
    explicit asker(const why_options& options) : options_(options) {}

    /// Failure: throws error.
    wait_report ask(const std::string& address) { return ask(find(address)); }

    /// The user's own engine.
    wait_report ask_first() {
        const engine_found first = of_argument("uri", [&] { return find(options_.uri); });
        try {
            return ask(first);
        } catch (const error& why) {
            if (why.code() != errc::timed_out) throw;
            const std::string outside = seen_from_outside(options_.uri);
            throw error(errc::timed_out,
                        fmt::format("{} does not answer within {} ms: it is stopped, or something "
                                    "holds its first stream without a wait, such as a handler "
                                    "that computes, or the network is down{}{}",
                                    shown(options_.uri), options_.timeout_ms,
                                    outside.empty() ? "" : ". Seen from outside: ", outside));
        }
    }

private:
    struct engine_found {
        engine& by;
        peer there;
    };
    engine_found find(const std::string& address) {
        const std::string whole = with_credentials("uri", address, options_.credentials);
        const std::string port = client_uri(uri::parse(whole));
        auto& by = clients_[port];
        constexpr std::size_t largest_report = std::size_t{8} << 20;
        if (by == nullptr)
            by = std::make_unique<engine>(
                port, engine_options{.name = "why", .max_values_bytes = largest_report});
        return {*by, by->lookup(whole)};
    }
    wait_report ask(const engine_found& whom) {
        const std::chrono::milliseconds limit(options_.timeout_ms);
        return no_more_than_promised(read_waits(whom.by, whom.there, limit));
    }

    const why_options& options_;
    std::map<std::string, std::unique_ptr<engine>> clients_;
};

/// An address that another process named: not one that makes us load a plug-in, or that has
/// options for us.
/// Failure: throws error for one that is none.
void check_followed(const std::string& address, const std::string& first) {
    const uri parsed = uri::parse(address);
    const std::string transport = transport_of(parsed);
    const bool known = transport == "tcp" || transport == "shm" || transport == "tcp+tls" ||
                       transport == transport_of(uri::parse(first));
    if (known && parsed.options.empty()) return;
    throw error(errc::unsupported,
                "only addresses of tcp, shm, tcp+tls and the first engine's own transport are "
                "followed, without options");
}

/// Adds what the peer of that call tells, at one of its own addresses or at the one that its caller
/// knows. Returns why not.
std::string follow(asker& by, const open_call& call, all_waits& all, const std::string& first,
                   std::chrono::steady_clock::time_point until) {
    constexpr std::size_t most = 8;
    std::vector<std::string> addresses = call.listens_at;
    if (addresses.size() > most) addresses.resize(most);
    addresses.push_back(call.peer);
    std::string why_not;
    for (const std::string& each : addresses) {
        if (!why_not.empty() && std::chrono::steady_clock::now() >= until) break;
        try {
            check_followed(each, first);
            wait_report told = by.ask(each);
            if (told.engine == call.engine) {
                all.engines.push_back({each, std::move(told)});
                return {};
            }
            why_not = "another engine answers at that address";
        } catch (const std::exception& failed) {
            why_not = failed.what();
        }
    }
    return why_not;
}

/// Follows open calls from engine to engine, the nearest first.
all_waits gather(asker& by, const why_options& options) {
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + std::chrono::milliseconds(options.timeout_ms) * 4;
    all_waits all;
    all.engines.push_back({options.uri, by.ask_first()});
    for (std::size_t i = 0; i < all.engines.size(); ++i) {
        const std::vector<open_call> calls = all.engines[i].told.calls;
        for (const open_call& each : calls) {
            if (each.answer == peer_answer::silent && all.outside.count(each.peer) == 0)
                all.outside[each.peer] = seen_from_outside(each.peer);
            if (each.answer != peer_answer::told || each.handler == 0 || each.engine == 0 ||
                all.find(each.engine) != nullptr || all.unasked.count(each.peer) != 0) {
                continue;
            }
            std::string& why_not = all.unasked[each.peer];
            if (all.engines.size() >= options.engines) {
                why_not = "enough engines were asked; see --engines";
            } else if (clock::now() >= until) {
                why_not = "there was no time left; see --timeout";
            } else {
                why_not = follow(by, each, all, options.uri, until);
                if (why_not.empty()) all.unasked.erase(each.peer);
            }
        }
    }
    return all;
}

/// Engines are asked one after the other, so that what goes on meanwhile may look like a cycle.
/// One that is still there at a second look is one.
std::vector<wait_chain> chains_that_stay(const all_waits& all, asker& by,
                                         const why_options& options) {
    std::vector<wait_chain> chains = chains_of(all);
    const bool any = std::any_of(chains.begin(), chains.end(),
                                 [](const wait_chain& each) { return each.cycle.has_value(); });
    if (!any) return chains;
    const all_waits again = gather(by, options);
    std::vector<std::vector<std::uint64_t>> cycles;
    for (const wait_chain& each : chains_of(again))
        cycles.push_back(cycle_in(again, each));
    for (wait_chain& each : chains) {
        if (!each.cycle) continue;
        if (std::find(cycles.begin(), cycles.end(), cycle_in(all, each)) != cycles.end()) continue;
        each.cycle.reset();
        each.end = "it went on while it was looked at";
    }
    return chains;
}

void why(const why_options& options) {
    asker by(options);
    const all_waits all = gather(by, options);
    const std::vector<wait_chain> chains = chains_that_stay(all, by, options);
    fmt::print("{}{}", options.json ? json_of(all, chains) : text_of(all, chains),
               options.json ? "\n" : "");
}

}  // namespace

void add_why(CLI::App& app) {
    auto options = std::make_shared<why_options>();
    auto* command = app.add_subcommand(
        "why",
        "Say what the open calls and running handlers of an engine wait for, from process to "
        "process, and name deadlocks; of engines that offer it by am::offer_metrics()");
    command->footer("example: amalgam why tcp://127.0.0.1:7000");
    command->add_option("uri", options->uri, "The engine's address")
        ->required()
        ->check(CLI::Validator(&refusal_of_address, ""));
    add_credentials(*command, options->credentials);
    command
        ->add_option("--timeout", options->timeout_ms,
                     "Milliseconds to wait for each answer, and a quarter of those to wait for all")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
    command->add_option("--engines", options->engines, "Engines to ask at most; 1: only this one")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    command->add_flag("--json", options->json, "Print JSON: all that was told, and the chains");
    command->callback([options] {
        try {
            why(*options);
        } catch (const error& failed) {  // May be the text of the peer.
            throw error(failed.code(), shown(failed.what(), 8192));
        }
    });
}

}  // namespace amalgam::tool
