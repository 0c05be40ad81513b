#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/provider.hpp>

#include "call/json_values.hpp"
#include "call/shown.hpp"
#include "call/signature.hpp"
#include "commands.hpp"
#include "credentials_option.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct call_options {
    std::string uri;
    std::string credentials;
    std::string name;
    std::string arguments = "[]";
    unsigned provider = 0;
    unsigned timeout_ms = 5000;
    bool health = false;
    bool json = false;
};

void list(engine& client, const peer& target, bool as_json) {
    for (const procedure_description& each : describe(client, target)) {
        if (as_json) {
            print_json({{"name", each.name},
                        {"signature", each.signature},
                        {"provider", each.provider},
                        {"about", each.about}});
            continue;
        }
        fmt::print("{} {}{}{}{}\n", shown(each.name), shown(each.signature, 2000),
                   each.provider == 0 ? "" : fmt::format(" provider {}", each.provider),
                   each.about.empty() ? "" : ": ", shown(each.about, 1024));
    }
}

/// Exit code 0: it serves; 1: it does not.
void show_health(engine& client, const peer& target, bool as_json) {
    const engine_health now = health_of(client, target);
    if (as_json)
        print_json(
            {{"serving", now.serving}, {"sentence", now.sentence}, {"running", now.running}});
    else
        fmt::print("{}{}{}; {} calls running\n", now.serving ? "serving" : "not serving",
                   now.sentence.empty() ? "" : ": ", shown(now.sentence, 1024), now.running);
    if (!now.serving) throw exit_code{1};
}

std::string signature_of(engine& client, const peer& target, const call_options& options) {
    std::string names;
    std::size_t others = 0;
    for (const procedure_description& each : describe(client, target)) {
        if (each.name == options.name && each.provider == options.provider) return each.signature;
        if (each.name == options.name)
            names =
                fmt::format("provider {} does; add --provider {}", each.provider, each.provider);
        else if (++others <= 10 && !names.starts_with("provider"))
            names += (names.empty() ? "it has: " : ", ") + shown(each.name);
    }
    if (others > 10 && !names.starts_with("provider"))
        names += fmt::format(" …and {} more", others - 10);
    throw error(
        errc::not_found,
        fmt::format("{} serves no procedure \"{}\"{}{}", shown(options.uri), shown(options.name),
                    options.provider == 0 ? "" : fmt::format(" for provider {}", options.provider),
                    names.empty() ? "" : "; " + names));
}

void call(const call_options& options) {
    const std::string address = of_argument(
        "uri", [&] { return with_credentials("uri", options.uri, options.credentials); });
    const std::string port = client_uri(uri::parse(address));
    const json arguments =
        of_argument("arguments", [&] { return parse_arguments(options.arguments); });
    engine client(port, {.name = "call"});
    const peer target = of_argument("uri", [&] { return client.lookup(address); });
    if (options.health) return show_health(client, target, options.json);
    if (options.name.empty()) return list(client, target, options.json);
    std::string text = signature_of(client, target, options);
    const call_signature signature = parse_signature(text);
    const raw_values values =
        of_argument("arguments", [&] { return encode(signature, arguments); });
    const raw_values answer =
        client.call_raw(target, options.name, std::move(text), values,
                        {.provider = static_cast<std::uint16_t>(options.provider),
                         .timeout = std::chrono::milliseconds(options.timeout_ms)});
    if (signature.result.name != "void")
        fmt::print("{}\n", to_text(decode(signature.result, answer)));
}

}  // namespace

void add_call(CLI::App& app) {
    auto options = std::make_shared<call_options>();
    auto* command = app.add_subcommand(
        "call",
        "Call a procedure with JSON arguments and print its result as JSON; without a name, list "
        "the procedures");
    command->footer("example: amalgam call tcp://127.0.0.1:7000 sum '[1, 2]'");
    command->add_option("uri", options->uri, "The engine's address")->required();
    CLI::Option* const name = command->add_option("name", options->name, "The procedure");
    name->check(CLI::Validator(
        [](const std::string& text) {
            return text.empty() ? "\"\" is not a procedure's name; leave it out to list them; "
                                  "example: sum"
                                : std::string();
        },
        ""));
    command->add_option("arguments", options->arguments, "A JSON list with a value for each")
        ->capture_default_str();
    add_credentials(*command, options->credentials);
    command->add_option("--provider", options->provider, "The provider's id")
        ->check(CLI::Range(0, 65535))
        ->capture_default_str();
    command->add_option("--timeout", options->timeout_ms, "Milliseconds to wait for the answer")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
    command
        ->add_flag("--health", options->health,
                   "Ask whether the engine serves; exit code 1 if it does not")
        ->excludes(name);
    add_json(*command, options->json, "procedure; results are JSON without it");
    command->callback([options] {
        try {
            call(*options);
        } catch (const error& why) {  // May be the text of the peer's handler.
            constexpr std::size_t most = 8192;
            throw error(why.code(), shown(why.what(), most));
        }
    });
}

}  // namespace amalgam::tool
