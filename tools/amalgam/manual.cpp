// Manual pages and completions, made from the commands' own definitions.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/version.hpp>

#include "commands.hpp"
#include "definitions.hpp"

namespace amalgam::tool {
namespace {

/// Text as man(7) shows it: no character of it is an order to the formatter.
std::string roff(const std::string& text) {
    std::string out;
    bool begins_line = true;
    for (const char each : text) {
        if (begins_line && (each == '.' || each == '\'')) out += "\\&";
        if (each == '\\') {
            out += "\\e";
        } else if (each == '-') {
            out += "\\-";
        } else {
            out += each;
        }
        begins_line = each == '\n';
    }
    return out;
}

std::string argument_in_synopsis(const argument_definition& argument) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(argument.name), argument.many ? " ..." : "");
    return argument.required ? name : "[" + name + "]";
}

void add_options(std::string& page, const command_definition& command) {
    if (command.options.empty()) return;
    page += ".SH OPTIONS\n";
    for (const option_definition& each : command.options) {
        page +=
            fmt::format(".TP\n\\fB{}\\fR", roff(fmt::format("{}", fmt::join(each.names, ", "))));
        if (!each.value.empty()) page += fmt::format(" \\fI{}\\fR", roff(each.value));
        page += "\n" + roff(each.about);
        if (!each.initial.empty()) page += fmt::format(" (default: {})", roff(each.initial));
        page += '\n';
    }
}

void add_footer(std::string& page, const std::string& footer) {
    if (footer.empty()) return;
    constexpr std::string_view example = "example: ";
    if (footer.starts_with(example))
        page += fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", roff(footer.substr(example.size())));
}

/// The command that `words` lead to.
const command_definition& find_command(const command_definition& root,
                                       const std::vector<std::string>& words) {
    const command_definition* at = &root;
    for (const std::string& word : words) {
        const command_definition* next = nullptr;
        for (const command_definition& each : at->commands)
            if (each.path.back() == word) next = &each;
        if (next == nullptr) {
            std::vector<std::string> names;
            for (const command_definition& each : at->commands)
                names.push_back(each.path.back());
            throw CLI::ValidationError(
                "command",
                names.empty() ? fmt::format("\"{}\" has no commands", fmt::join(at->path, " "))
                              : fmt::format("\"{}\" is no command of {}; expected one of: {}", word,
                                            fmt::join(at->path, " "), fmt::join(names, ", ")));
        }
        at = next;
    }
    return *at;
}

command_definition all_of(const CLI::App& app) {
    return definition_of(app, {"amalgam"});
}

}  // namespace

std::string manual_page(const command_definition& command, const std::string& version) {
    const std::string name = fmt::format("{}", fmt::join(command.path, "-"));
    // Without a date, the same sources give the same page.
    std::string page =
        fmt::format(".TH \"{}\" 1 \"\" \"Amalgam {}\" \"Amalgam\"\n.SH NAME\n{} \\- {}\n", name,
                    version, roff(name), roff(command.about));
    page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR",
                        roff(fmt::format("{}", fmt::join(command.path, " "))));
    if (!command.options.empty()) page += " [\\fIoptions\\fR]";
    for (const argument_definition& each : command.arguments)
        page += " " + argument_in_synopsis(each);
    if (!command.commands.empty()) page += " \\fIcommand\\fR ...";
    page += '\n';
    if (!command.arguments.empty()) {
        page += ".SH ARGUMENTS\n";
        for (const argument_definition& each : command.arguments)
            page += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(each.name), roff(each.about));
    }
    if (!command.commands.empty()) {
        page += ".SH COMMANDS\n";
        for (const command_definition& each : command.commands)
            page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(each.path.back()), roff(each.about));
    }
    add_options(page, command);
    page += fmt::format(".SH EXIT STATUS\n{}\n", roff(command.exits));
    add_footer(page, command.footer);
    std::vector<std::string> others;
    if (command.path.size() > 1)
        others.push_back(
            fmt::format("{}", fmt::join(command.path.begin(), command.path.end() - 1, "-")));
    for (const command_definition& each : command.commands)
        others.push_back(fmt::format("{}", fmt::join(each.path, "-")));
    if (!others.empty()) {
        page += ".SH SEE ALSO\n";
        for (std::size_t i = 0; i < others.size(); ++i)
            page +=
                fmt::format(".BR {} (1){}\n", roff(others[i]), i + 1 < others.size() ? "," : "");
    }
    return page;
}

void add_man(CLI::App& app) {
    struct man_options {
        std::vector<std::string> words;
        bool list = false;
    };
    auto options = std::make_shared<man_options>();
    auto* command = app.add_subcommand("man", "Print the manual page of a command, for man");
    command->footer("example: amalgam man run | man -l -");
    command->add_option("command", options->words, "The command; without: amalgam itself");
    command->add_flag("--list", options->list, "Print the name of each page that there is");
    command->callback([options, &app] {
        const command_definition root = all_of(app);
        if (options->list) {
            for_each_command(root, [](const command_definition& each) {
                fmt::print("{}\n", fmt::join(each.path, "-"));
            });
            return;
        }
        fmt::print("{}", manual_page(find_command(root, options->words), version()));
    });
}

void add_completion(CLI::App& app) {
    auto shell = std::make_shared<std::string>();
    auto* command = app.add_subcommand("completion",
                                       "Print what a shell sources to complete amalgam's commands");
    command->footer("example: source <(amalgam completion bash)");
    command->add_option("shell", *shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember(completed_shells()));
    command->callback([shell, &app] { fmt::print("{}", completion_script(all_of(app), *shell)); });
}

}  // namespace amalgam::tool
