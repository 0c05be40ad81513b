// The tool's options, each tested by an effect it alone has.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>

#include "contains.hpp"
#include "shell_word.hpp"
#include "thrown.hpp"
#include "tool/run_tool.hpp"

namespace amalgam::tool_testing {
namespace {

namespace files = std::filesystem;

/// A folder for the test.
class tool_options : public testing::Test {
protected:
    void SetUp() override { files::create_directories(folder); }
    void TearDown() override { files::remove_all(folder); }

    /// Runs the tool in that folder.
    outcome tool(const std::string& arguments) {
        return run_tool("cd " + folder.string() + " && " + shell_word(AMALGAM_TOOL), arguments);
    }
    /// What `amalgam inject show` prints after that word.
    std::string shown(const std::string& image, const std::string& word) {
        std::istringstream lines(tool("inject show " + image).output);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(word)) return line.substr(11);
        return "nothing";
    }

    const files::path folder =
        files::path(testing::TempDir()) / ("tool_options" + std::to_string(::getpid()));
};

TEST_F(tool_options, version_prints_the_projects) {
    const auto got = tool("--version");
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.output, AMALGAM_VERSION "\n");
}

TEST_F(tool_options, inject_build_signs_with_the_key_that_sign_names) {
    std::ofstream(folder / "seven.c") << "void seven_main(void* p, unsigned long n, void* t) {}\n";
    const auto key = tool("inject key mine.key");
    ASSERT_EQ(key.code, 0) << key.output;
    const auto with = tool("inject build seven.c --sign mine.key -o with.image");
    ASSERT_EQ(with.code, 0) << with.output;
    const auto without = tool("inject build seven.c -o without.image");
    ASSERT_EQ(without.code, 0) << without.output;
    EXPECT_EQ(shown("with.image", "signed by") + "\n", key.output);
    EXPECT_EQ(shown("without.image", "signed by"), "nobody");
    EXPECT_EQ(tool("inject build seven.c --sign no.key -o other.image").code, 1);
    EXPECT_FALSE(files::exists(folder / "other.image"));
}

TEST_F(tool_options, inject_build_calls_the_image_as_name_says) {
    std::ofstream(folder / "file.c") << "void seven_main(void* p, unsigned long n, void* t) {}\n"
                                        "void file_main(void* p, unsigned long n, void* t) {}\n";
    const auto got = tool("inject build file.c --name seven");
    ASSERT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(shown("seven.image", "name"), "seven");
    EXPECT_EQ(shown("seven.image", "exports"), "seven_main");
    ASSERT_EQ(tool("inject build file.c").code, 0);
    EXPECT_EQ(shown("file.image", "name"), "file");
}

TEST_F(tool_options, perf_moves_so_many_bytes_so_often_at_once_as_size_and_depth_say) {
    // Checks the reported values, and their effect.
    for (const auto& [options, bytes, depth] :
         {std::tuple{"", 64, 16}, {" --size 4096", 4096, 16}, {" --depth 3", 64, 3}}) {
        const auto got = tool(std::string("perf rpc-rate --seconds 0.05 --json") + options);
        ASSERT_EQ(got.code, 0) << got.output;
        const auto one = nlohmann::json::parse(got.output);
        EXPECT_EQ(one["size_bytes"], bytes) << options;
        EXPECT_EQ(one["depth"], depth) << options;
        EXPECT_NEAR(one["bytes_per_s"].get<double>() / one["ops_per_s"].get<double>(), bytes, 1);
    }
}

/// A directory found only by those told its address.
class tool_find : public tool_options {
protected:
    void SetUp() override {
        tool_options::SetUp();
        for (int i = 0; i < 3; ++i)
            all.push_back(here.add({{"type", "lamp"}}));
    }
    /// By default there is no directory.
    outcome find(const std::string& options) {
        return run_tool("AMALGAM_DIRECTORY=tcp://127.0.0.1:1 " + shell_word(AMALGAM_TOOL),
                        "find type=lamp" + options);
    }

    engine on{"shm://"};
    directory_server server{on};
    context here{{"shm://"}, {.directory = on.address()}};
    std::vector<resource> all;
};

TEST_F(tool_find, asks_the_directory_that_at_names) {
    const auto there = find(" --at " + on.address());
    EXPECT_EQ(there.code, 0) << there.output;
    EXPECT_EQ(std::count(there.output.begin(), there.output.end(), '\n'), 3) << there.output;
    const auto nowhere = find("");
    EXPECT_EQ(nowhere.code, 1);
    EXPECT_TRUE(nowhere.output.starts_with("amalgam: ")) << nowhere.output;
}

TEST_F(tool_find, lists_as_many_as_most_says_and_tells_that_there_are_more) {
    const auto two = find(" --most 2 --at " + on.address());
    EXPECT_EQ(two.code, 0) << two.output;
    EXPECT_EQ(std::count(two.output.begin(), two.output.end(), '\n'), 3) << two.output;
    EXPECT_TRUE(two.output.ends_with("\n… and more; raise --most to list them\n")) << two.output;
    EXPECT_FALSE(contains(find(" --most 3 --at " + on.address()).output, "and more"));
}

/// The only remaining child of this process.
std::optional<pid_t> only_child() {
    std::optional<pid_t> found;
    for (const auto& each : files::directory_iterator("/proc")) {
        std::ifstream file(each.path() / "stat");
        std::string text;
        if (!std::getline(file, text) || text.find(')') == text.npos) continue;
        std::istringstream behind_name(text.substr(text.rfind(')') + 1));
        char state = 0;
        pid_t parent = 0;
        behind_name >> state >> parent;
        if (parent != ::getpid()) continue;
        if (found) return std::nullopt;
        found = std::stoi(each.path().filename());
    }
    return found;
}

TEST_F(tool_options, a_directory_with_detach_serves_in_a_session_of_its_own_behind_its_command) {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // Adopts it when its parent is gone.
    // Its output ends although the directory goes on: else the command would not return.
    const auto started = tool("directory shm:// --detach --end-after 60");
    EXPECT_EQ(started.code, 0);
    const auto directory = only_child();
    ASSERT_TRUE(directory);
    const std::string said = started.output;
    ASSERT_TRUE(said.starts_with("directory at shm://")) << said;
    EXPECT_EQ(::getsid(*directory), *directory);
    const std::string address = said.substr(13, said.size() - 14);
    const auto answers = tool("ping --count 1 " + address);
    EXPECT_EQ(answers.code, 0) << answers.output;

    ASSERT_EQ(::kill(*directory, SIGTERM), 0);
    int how = 0;
    ASSERT_EQ(::waitpid(*directory, &how, 0), *directory);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
}

TEST_F(tool_options, a_directory_with_detach_has_the_credentials_of_the_folder_it_was_started_in) {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ASSERT_EQ(tool("key new ./lab --authority").code, 0);
    ASSERT_EQ(tool("key new ./node --host 127.0.0.1 --with ./lab").code, 0);
    for (const auto& [from, named] : {std::pair("", "./node"), std::pair("/node", ".")}) {
        const auto started =
            run_tool(fmt::format("cd {}{} && {}", folder.string(), from, shell_word(AMALGAM_TOOL)),
                     fmt::format("directory 'tcp+tls://127.0.0.1:0?credentials={}' --detach "
                                 "--end-after 60",
                                 named));
        EXPECT_EQ(started.code, 0) << started.output;
        EXPECT_TRUE(started.output.starts_with("directory at tcp+tls://127.0.0.1:"))
            << started.output;
        const auto directory = only_child();
        ASSERT_TRUE(directory);
        ASSERT_EQ(::kill(*directory, SIGTERM), 0);
        int how = 0;
        ASSERT_EQ(::waitpid(*directory, &how, 0), *directory);
        EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
    }
}

TEST_F(tool_options, a_directory_with_owners_of_an_attribute_takes_it_of_these_only) {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const std::string me = fmt::format("uid:{}", ::geteuid());
    // Each option takes its own words: what follows is an address.
    const auto started = tool("directory --detach --end-after 60 --readers " + me +
                              " shm:// --owners-of type=database uid:4000000 --owners-of "
                              "type=database group:databases --owners-of rack " +
                              me + " shm://");
    ASSERT_EQ(started.code, 0) << started.output;
    ASSERT_TRUE(started.output.starts_with("directory at shm://")) << started.output;
    EXPECT_EQ(std::count(started.output.begin(), started.output.end(), '\n'), 2);
    const auto directory = only_child();
    ASSERT_TRUE(directory);
    const std::string address = started.output.substr(13, started.output.find('\n') - 13);
    {
        context here{{"shm://"}, {.directory = address}};
        const resource box = here.add({{"type", "box"}, {"rack", "7"}});
        const error why = error_of([&] { (void)here.add({{"type", "database"}}); });
        EXPECT_EQ(why.code(), errc::denied);
        EXPECT_TRUE(
            std::string(why.what())
                .starts_with("only group:databases, uid:4000000 may give {type: \"database\"} to "))
            << why.what();
        EXPECT_EQ(code_of([&] { box.set({{"type", "database"}}); }), errc::denied);
    }
    ASSERT_EQ(::kill(*directory, SIGTERM), 0);
    int how = 0;
    ASSERT_EQ(::waitpid(*directory, &how, 0), *directory);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
}

TEST_F(tool_options, owners_of_an_attribute_that_are_malformed_are_refused_with_an_example) {
    for (const auto& [words, expected] :
         {std::pair("=database uid:1000",
                    "\"=database\" names no attribute, expected NAME=VALUE or "
                    "NAME, of 1 to 255 bytes; example: type=database"),
          std::pair("type=database uid:me", "\"uid:me\" is not a user, expected its number"),
          std::pair("type=database", "2 required ATTRIBUTE WHO missing")}) {
        const auto refused = tool(std::string("directory shm:// --owners-of ") + words);
        EXPECT_EQ(refused.code, 2) << words;
        EXPECT_TRUE(contains(refused.output, expected)) << refused.output;
    }
}

TEST_F(tool_options, a_directory_with_detach_that_cannot_serve_says_so_and_fails) {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const auto refused = tool("directory tcp://192.0.2.1:0?insecure=yes --detach --end-after 60");
    EXPECT_EQ(refused.code, 1);
    EXPECT_TRUE(contains(refused.output, "192.0.2.1")) << refused.output;
    EXPECT_FALSE(only_child());
}

}  // namespace
}  // namespace amalgam::tool_testing
