#include "definitions.hpp"

#include <utility>

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

}  // namespace amalgam::tool
