// `amalgam man` and `amalgam completion`, as man and the shells read them.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
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

TEST(tool_completion, completes_commands_and_options_in_bash) {
    if (!is_installed("bash")) GTEST_SKIP() << "bash is not installed";
    const amalgam::temp_folder folder;
    const std::string script = folder.with("completion");
    ASSERT_EQ(amalgam_tool("completion bash > " + script).code, 0);
    const auto completed = [&](const std::string& words, int at) {
        return run_tool("bash -c", "'source " + script + "; COMP_WORDS=(" + words +
                                       "); COMP_CWORD=" + std::to_string(at) +
                                       "; _amalgam; echo ${COMPREPLY[@]}'")
            .output;
    };
    EXPECT_EQ(completed("amalgam dir", 1), "directory\n");
    EXPECT_EQ(completed("amalgam key tr", 2), "trust\n");
    EXPECT_EQ(completed("amalgam key new --ho", 3), "--host\n");
    EXPECT_EQ(completed("amalgam run -c groups.json --gr", 4), "--grace\n");
    EXPECT_EQ(completed("amalgam run -- key", 3), "\n");
}

TEST(tool_completion, is_read_by_zsh_and_fish) {
    const amalgam::temp_folder folder;
    for (const std::string shell : {"zsh", "fish"}) {
        const std::string script = folder.with(shell);
        ASSERT_EQ(amalgam_tool("completion " + shell + " > " + script).code, 0);
        if (!is_installed(shell)) continue;
        const auto read = run_tool(shell + " -n", script);
        EXPECT_EQ(read.code, 0) << read.output;
    }
    if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
    const auto completed = [&folder](const std::string& line) {
        return run_tool("fish --no-config -c",
                        "'source " + folder.with("fish") + "; complete -C \"" + line + "\"'")
            .output;
    };
    EXPECT_TRUE(contains(completed("amalgam key tr"), "trust\t")) << completed("amalgam key tr");
    EXPECT_TRUE(contains(completed("amalgam key new --ho"), "--host\t"))
        << completed("amalgam key new --ho");
}

}  // namespace
