// `amalgam man` and `amalgam completion`, as man and the shells read them.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contains.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"
#include "tool/run_tool.hpp"

using amalgam::contains;
using amalgam::shell_word;
using amalgam::tool_testing::amalgam_tool;
using amalgam::tool_testing::run_tool;

namespace {

bool is_installed(const std::string& program) {
    return run_tool("command -v", program).code == 0;
}

std::vector<std::string> pages() {
    std::istringstream lines(amalgam_tool("man --list").output);
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);)
        names.push_back(line);
    return names;
}

/// "amalgam-key-new" as "key new".
std::string words_of(const std::string& page) {
    std::string words = page == "amalgam" ? "" : page.substr(std::string("amalgam-").size());
    for (char& each : words)
        if (each == '-') each = ' ';
    return words;
}

TEST(tool_manual, has_a_page_for_each_command_with_its_options) {
    const auto all = pages();
    ASSERT_GE(all.size(), 12u);
    for (const std::string& name : all) {
        const auto page = amalgam_tool("man " + words_of(name));
        EXPECT_EQ(page.code, 0) << name;
        EXPECT_TRUE(contains(page.output, ".TH \"" + name + "\" 1 ")) << page.output;
        EXPECT_TRUE(contains(page.output, "\\-\\-help")) << page.output;
        EXPECT_TRUE(contains(page.output, ".SH EXIT STATUS\n")) << page.output;
        EXPECT_TRUE(contains(page.output, "; 2: ")) << page.output;
    }
    const auto run = amalgam_tool("man run").output;
    EXPECT_TRUE(contains(run, "\\fB\\-\\-grace\\fR")) << run;
    EXPECT_TRUE(contains(run, "(default: 3)")) << run;
    EXPECT_TRUE(contains(run, ".SH EXIT STATUS\n0: all processes have ended with 0")) << run;
}

TEST(tool_manual, formats_without_a_warning) {
    if (!is_installed("groff")) GTEST_SKIP() << "groff is not installed";
    for (const std::string& name : pages()) {
        const auto formatted = run_tool(shell_word(AMALGAM_TOOL),
                                        "man " + words_of(name) + " | groff -man -ww -z -Kutf8");
        EXPECT_EQ(formatted.code, 0) << name;
        EXPECT_EQ(formatted.output, "") << name;
    }
}

TEST(tool_manual, says_which_commands_there_are) {
    const auto unknown = amalgam_tool("man key nope");
    EXPECT_EQ(unknown.code, 2);
    EXPECT_TRUE(
        contains(unknown.output, "\"nope\" is no command of amalgam key; expected one of: new, "))
        << unknown.output;
}

/// What Tab makes of a line: its last word, or what was typed if nothing of the tool follows there.
const std::vector<std::pair<std::string, std::string>>& lines_and_last_words() {
    static const std::vector<std::pair<std::string, std::string>> all{
        {"amalgam dir", "directory"},       {"amalgam key tr", "trust"},
        {"amalgam key new --ho", "--host"}, {"amalgam run -c groups.json --gr", "--grace"},
        {"amalgam run -- ke", "ke"},        {"amalgam find key tr", "tr"},
    };
    return all;
}

std::string last_word(const std::string& line) {
    return line.substr(line.rfind(' ') + 1);
}

/// A folder with the file `name` that has the completions for `shell`.
void write_completions(const amalgam::temp_folder& folder, const std::string& shell,
                       const std::string& name) {
    ASSERT_EQ(amalgam_tool("completion " + shell + " > " + shell_word(folder.with(name))).code, 0);
}

/// Runs `script` in the folder, with the line as its first argument.
std::string in_folder(const amalgam::temp_folder& folder, const std::string& shell,
                      const std::string& script, const std::string& line) {
    std::ofstream(folder.with("script")) << script << "\n";
    return run_tool("cd " + shell_word(folder.path()) + " && " + shell + " script",
                    shell_word(line))
        .output;
}

TEST(tool_completion, completes_commands_and_options_in_bash) {
    if (!is_installed("bash")) GTEST_SKIP() << "bash is not installed";
    const amalgam::temp_folder folder;
    write_completions(folder, "bash", "completions");
    for (const auto& [line, word] : lines_and_last_words())
        EXPECT_EQ(in_folder(folder, "bash", R"(source ./completions
COMP_WORDS=($1)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_amalgam
echo "${COMPREPLY[@]:-${COMP_WORDS[COMP_CWORD]}}")",
                            line),
                  word + "\n")
            << line;
}

TEST(tool_completion, completes_at_the_first_tab_where_zsh_finds_the_file) {
    if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
    const amalgam::temp_folder folder;
    write_completions(folder, "zsh", "_amalgam");
    // A zsh with a terminal, which prints what the line is after Tab.
    for (const auto& [line, word] : lines_and_last_words())
        EXPECT_EQ(last_word(in_folder(folder, "zsh -f", R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=(\$PWD \$fpath); autoload -Uz compinit; compinit -u -D
tab() { zle complete-word; print -r -- \"<\${BUFFER% }>\"; }; zle -N tab; bindkey '^I' tab; print rea''dy"
zpty -r shell seen '*ready*'
zpty -w -n shell "$1"$'\t'
zpty -r shell seen '*<*>*'
print -r -- ${${seen##*<}%%>*})",
                                      line)),
                  word + "\n")
            << line;
}

TEST(tool_completion, completes_commands_and_options_in_fish) {
    if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
    const amalgam::temp_folder folder;
    write_completions(folder, "fish", "completions");
    for (const auto& [line, word] : lines_and_last_words())
        EXPECT_EQ(in_folder(folder, "fish --no-config", R"(source completions
set found (complete -C $argv[1] | string split -f 1 \t)
test (count $found) -gt 0; or set found (string split ' ' $argv[1])[-1]
echo $found)",
                            line),
                  word + "\n")
            << line;
}

}  // namespace
