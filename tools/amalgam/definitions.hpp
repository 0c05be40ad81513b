#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace amalgam::tool {

/// One option of a command, as manual pages and completions tell it.
struct option_definition {
    std::vector<std::string> names;  ///< "-c", "--config".
    std::string value;               ///< What follows it, as "TEXT"; empty for a flag.
    std::string initial;             ///< Its default; empty if it has none.
    std::string about;
};

/// A word, or words, by place.
struct argument_definition {
    std::string name;
    bool required = false;
    bool many = false;
    std::string about;
};

/// A command as its definition tells it; commands inside it have their own.
struct command_definition {
    std::vector<std::string> path;  ///< Words that lead to it: {"amalgam", "key", "new"}.
    std::string about;
    std::string footer;  ///< "example: …".
    std::string exits;   ///< What its exit codes say.
    std::vector<argument_definition> arguments;
    std::vector<option_definition> options;
    std::vector<command_definition> commands;
};

/// All that `app` defines, hidden options and commands left out. `path` leads to it.
command_definition definition_of(const CLI::App& app, std::vector<std::string> path);

/// What the exit codes of the command at `path` say, in a sentence for each.
std::string exits_of(const std::vector<std::string>& path);

/// `visit` for it and for all inside, parents first.
template <typename Visit>
void for_each_command(const command_definition& at, Visit visit) {
    visit(at);
    for (const command_definition& each : at.commands)
        for_each_command(each, visit);
}

/// The manual page of one command, for man(7); `version` is told in its foot.
std::string manual_page(const command_definition& command, const std::string& version);

/// What a shell sources to complete all commands; `shell` is one of completed_shells().
std::string completion_script(const command_definition& root, const std::string& shell);
const std::vector<std::string>& completed_shells();

}  // namespace amalgam::tool
