// What shells source to complete the tool's commands and options. A word that is neither is
// completed as a file name, which most values are.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "definitions.hpp"

namespace amalgam::tool {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between) {
    return fmt::format("{}", fmt::join(words, between));
}

/// In single quotes for any shell.
std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char each : text) {
        if (each == '\'') {
            out += "'\\''";
        } else {
            out += each == '\n' ? ' ' : each;
        }
    }
    return out + "'";
}

/// fish knows no '\'' but backslashes inside single quotes.
std::string quoted_for_fish(const std::string& text) {
    std::string out = "'";
    for (const char each : text) {
        if (each == '\'' || each == '\\') out += '\\';
        out += each == '\n' ? ' ' : each;
    }
    return out + "'";
}

std::vector<std::string> words_after(const command_definition& command) {
    std::vector<std::string> words;
    for (const command_definition& each : command.commands)
        words.push_back(each.path.back());
    for (const option_definition& each : command.options)
        words.insert(words.end(), each.names.begin(), each.names.end());
    return words;
}

/// Cases of a shell's `case $path in`: what can follow each command.
std::string cases(const command_definition& root, const char* variable) {
    std::string out;
    for_each_command(root, [&](const command_definition& each) {
        out += fmt::format("        {}) {}={} ;;\n", quoted(joined(each.path, " ")), variable,
                           quoted(joined(words_after(each), " ")));
    });
    return out;
}

/// The names of all commands, for each word of the line that leads deeper.
std::string inner_paths(const command_definition& root, const char* between) {
    std::vector<std::string> paths;
    for_each_command(root, [&](const command_definition& each) {
        if (each.path.size() > 1) paths.push_back(quoted(joined(each.path, " ")));
    });
    return joined(paths, between);
}

std::string for_bash(const command_definition& root) {
    return fmt::format(R"(# bash completion for amalgam
_amalgam() {{
    local path=amalgam words= i
    for ((i = 1; i < COMP_CWORD; ++i)); do
        [ "${{COMP_WORDS[i]}}" = -- ] && return
        case "$path ${{COMP_WORDS[i]}}" in
            {}) path="$path ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$path" in
{}    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _amalgam amalgam
)",
                       inner_paths(root, "|"), cases(root, "words"));
}

std::string for_zsh(const command_definition& root) {
    return fmt::format(R"(#compdef amalgam
_amalgam() {{
    local way=amalgam follows= i
    for ((i = 2; i < CURRENT; ++i)); do
        [[ $words[i] == -- ]] && {{ _files; return; }}
        case "$way $words[i]" in
            {}) way="$way $words[i]" ;;
        esac
    done
    case "$way" in
{}    esac
    compadd -- ${{=follows}}
    _files
}}
if [[ $funcstack[1] == _amalgam ]]; then _amalgam; else compdef _amalgam amalgam; fi
)",
                       inner_paths(root, "|"), cases(root, "follows"));
}

std::string for_fish(const command_definition& root) {
    std::string out = fmt::format(R"(# fish completion for amalgam
function __amalgam_is_at
    set -l path amalgam
    for word in (commandline -opc)[2..]
        test "$word" = --; and return 1
        switch "$path $word"
            case {}
                set path "$path $word"
        end
    end
    test "$path" = "$argv"
end
)",
                                  inner_paths(root, " "));
    for_each_command(root, [&](const command_definition& at) {
        const std::string condition = quoted("__amalgam_is_at " + joined(at.path, " "));
        for (const command_definition& each : at.commands)
            out += fmt::format("complete -c amalgam -n {} -a {} -d {}\n", condition,
                               each.path.back(), quoted_for_fish(each.about));
        for (const option_definition& each : at.options) {
            out += fmt::format("complete -c amalgam -n {}", condition);
            for (const std::string& name : each.names)
                out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            out += fmt::format("{} -d {}\n", each.value.empty() ? "" : " -r",
                               quoted_for_fish(each.about));
        }
    });
    return out;
}

}  // namespace

const std::vector<std::string>& completed_shells() {
    static const std::vector<std::string> shells{"bash", "zsh", "fish"};
    return shells;
}

std::string completion_script(const command_definition& root, const std::string& shell) {
    if (shell == "zsh") return for_zsh(root);
    return shell == "fish" ? for_fish(root) : for_bash(root);
}

}  // namespace amalgam::tool
