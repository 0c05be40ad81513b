#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/directory/context.hpp>

#include "commands.hpp"
#include "credentials_option.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct find_options {
    std::vector<std::string> attributes;
    std::string at;
    std::string credentials;
    unsigned most = 100;
    bool json = false;
};

/// "type=server" is a condition, "rack" is asked for.
attribute_list query_of(const std::vector<std::string>& attributes) {
    attribute_list query;
    for (const std::string& each : attributes) {
        const std::size_t equals = each.find('=');
        if (equals == std::string::npos) {
            query.ask(each);
        } else {
            query.add(each.substr(0, equals), each.substr(equals + 1));
        }
    }
    return query;
}

json_object as_json(const found_resource& one) {
    json_object attributes = json_object::object();
    for (const attribute& each : one.what.view())
        if (!each.is_open) attributes[std::string(each.name)] = each.text();
    return {{"id", static_cast<unsigned>(one.id)},
            {"context", static_cast<unsigned>(one.context)},
            {"attributes", std::move(attributes)}};
}

/// One that reaches the directory at that address; others need not reach it.
std::unique_ptr<context> join(const find_options& options) {
    context_options how{.directory = options.at};
    if (how.directory.empty()) return std::make_unique<context>(std::move(how));
    how.directory = with_credentials("--at", how.directory, options.credentials);
    const uri at = uri::parse(how.directory);
    if (!is_encrypted(at)) return std::make_unique<context>(std::move(how));
    return std::make_unique<context>(std::vector<std::string>{client_uri(at)}, std::move(how));
}

/// Exit code 0: something was found; 1: nothing.
void find(const find_options& options) {
    const attribute_list query =
        of_argument("attribute", [&] { return query_of(options.attributes); });
    const std::unique_ptr<context> joined = join(options);
    context& here = *joined;
    unsigned found = 0;
    resource_search search = here.search(query);
    for (const found_resource& each : search) {
        if (each.id == here.id()) continue;
        if (++found > options.most) {
            fmt::print(options.json ? stderr : stdout, "… and more; raise --most to list them\n");
            break;
        }
        if (options.json)
            print_json(as_json(each));
        else
            fmt::print("{} of {}: {}\n", static_cast<unsigned>(each.id),
                       static_cast<unsigned>(each.context), to_string(each.what));
    }
    if (search.missed() != 0)
        fmt::print(stderr, "at least {} directories did not answer: there may be more resources\n",
                   search.missed());
    if (found == 0) throw exit_code{1};
}

}  // namespace

void add_find(CLI::App& app) {
    auto options = std::make_shared<find_options>();
    auto* command = app.add_subcommand(
        "find", "List the resources with given attributes; exit code 1 if there are none");
    command->footer("example: amalgam find type=server rack");
    command->add_option(
        "attribute", options->attributes,
        "NAME=VALUE: resources must have it; NAME: show its value. Without any: all resources");
    command
        ->add_option("--at", options->at,
                     "The directory's address; default: AMALGAM_DIRECTORY, or this host's own")
        ->check(CLI::Validator(&refusal_of_address, ""));
    add_credentials(*command, options->credentials);
    command->add_option("--most", options->most, "Maximum number of resources to list")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    add_json(*command, options->json, "resource");
    command->callback([options] { find(*options); });
}

}  // namespace amalgam::tool
