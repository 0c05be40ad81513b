#include "definitions.hpp"

#include <map>
#include <utility>

#include <fmt/format.h>

namespace amalgam::tool {
namespace {

std::vector<std::string> with_dashes(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& each : option.get_snames())
        names.push_back("-" + each);
    for (const std::string& each : option.get_lnames())
        names.push_back("--" + each);
    return names;
}

bool is_hidden(const std::string& group) {
    return group.empty();
}

}  // namespace

command_definition definition_of(const CLI::App& app, std::vector<std::string> path) {
    command_definition found;
    found.path = std::move(path);
    found.about = app.get_description();
    found.footer = app.get_footer();
    found.exits = exits_of(found.path);
    for (const CLI::Option* each : app.get_options()) {
        if (is_hidden(each->get_group())) continue;
        if (each->get_positional()) {
            found.arguments.push_back({each->get_name(true), each->get_required(),
                                       each->get_items_expected_max() > 1,
                                       each->get_description()});
            continue;
        }
        const bool is_flag = each->get_items_expected_max() == 0;
        found.options.push_back({with_dashes(*each), is_flag ? "" : each->get_type_name(),
                                 is_flag ? "" : each->get_default_str(), each->get_description()});
    }
    for (const CLI::App* each : app.get_subcommands({})) {
        if (is_hidden(each->get_group())) continue;
        std::vector<std::string> words = found.path;
        words.push_back(each->get_name());
        found.commands.push_back(definition_of(*each, std::move(words)));
    }
    return found;
}

std::string exits_of(const std::vector<std::string>& path) {
    // Those of which 1 means more than a failure, or which exit as what they start.
    static const std::map<std::string, std::string> own{
        {"call", "0: it was answered; 1: it failed, or with --health: it does not serve"},
        {"find", "0: there are such resources; 1: there are none, or the search failed"},
        {"ping", "0: each call was answered in time; 1: one was not"},
        {"stats", "0: all have answered in the last round; 1: one has not"},
        {"why", "0: the engine has answered, whatever hangs; 1: it has not"},
        {"run",
         "0: all processes have ended with 0; else the code of the first that failed, which is 128 "
         "and the signal's number for one that was killed; 1: a process has not joined the run, or "
         "none has run a graph"},
        {"trace",
         "that of the program, which is 128 and the signal's number for one that was killed; 1: "
         "the "
         "trace could not be written, or a collector did not take all of it"}};
    const auto found = path.size() == 2 ? own.find(path[1]) : own.end();
    const char* const wrong = path.size() == 2 && path[1] == "run"
                                  ? "2: nothing was started or run, as the command line, the "
                                    "configuration or the graph is wrong"
                                  : "2: the command line is wrong";
    return fmt::format("{}; {}.",
                       found == own.end() ? "0: success; 1: failure, which a sentence on standard "
                                            "error explains"
                                          : found->second,
                       wrong);
}

}  // namespace amalgam::tool
