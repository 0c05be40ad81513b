// The command line tool as a user meets it: real processes, what they print, their exit codes.
#include <algorithm>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include <amalgam/rpc/engine.hpp>

namespace {

struct outcome {
    int code;
    std::string output;  ///< Standard output and error together.
};

outcome amalgam_tool(const std::string& arguments) {
    const std::string command = std::string(AMALGAM_TOOL) + " " + arguments + " 2>&1 </dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "could not start " + command};
    outcome result{0, {}};
    char part[4096];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
        result.output.append(part, n);
    const int ended = ::pclose(pipe);
    result.code = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return result;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST(tool_info, lists_every_native_transport) {
    const auto got = amalgam_tool("info");
    EXPECT_EQ(got.code, 0) << got.output;
    for (const char* name : {"loop", "shm", "tcp"})
        EXPECT_TRUE(has(got.output, name)) << got.output;
}

TEST(tool_info, json_says_the_same_as_the_table) {
    const auto got = amalgam_tool("info --json");
    ASSERT_EQ(got.code, 0) << got.output;
    const auto parsed = nlohmann::json::parse(got.output);
    ASSERT_EQ(parsed["transports"].size(), 3u);
    for (const auto& one : parsed["transports"])
        EXPECT_TRUE(one["usable"].get<bool>()) << one;
}

TEST(tool_info, explain_opens_the_port_and_says_where_it_listens) {
    const auto got = amalgam_tool("info --explain tcp://127.0.0.1:0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(has(got.output, "tcp://127.0.0.1:")) << got.output;
}

TEST(tool_info, a_wrong_uri_gets_one_sentence_with_an_example) {
    const auto got = amalgam_tool("info --explain tcp://127.0.0.1:99999");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(has(got.output, "99999")) << got.output;
    EXPECT_TRUE(has(got.output, "example: ")) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
}

TEST(tool_info, an_unknown_transport_is_told_which_there_are) {
    const auto got = amalgam_tool("info --explain pigeon://roof");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(has(got.output, "pigeon")) << got.output;
    EXPECT_TRUE(has(got.output, "tcp")) << got.output;
}

TEST(tool, a_wrong_command_line_gets_one_sentence_with_an_example) {
    const std::pair<const char*, const char*> cases[] = {
        {"", "no command was given; expected one of: info, ping, perf, run"},
        {"fly", "there is no command \"fly\"; expected one of: info, ping, perf, run"},
        {"ping", "ping: uri is required"},
        {"perf rpc-latency --seconds soon", "--seconds: Value soon"},
        {"run", "run: --config is required"},
        {"info --loud", "--loud"}};
    for (const auto& [line, why] : cases) {
        const auto got = amalgam_tool(line);
        EXPECT_NE(got.code, 0) << line;
        EXPECT_TRUE(got.output.starts_with("amalgam: ")) << got.output;
        EXPECT_TRUE(has(got.output, why)) << got.output;
        EXPECT_TRUE(has(got.output, "; example: amalgam ")) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }
}

TEST(tool, help_is_printed_with_code_0) {
    for (const char* line : {"--help", "ping --help"}) {
        const auto got = amalgam_tool(line);
        EXPECT_EQ(got.code, 0) << line;
        EXPECT_TRUE(has(got.output, "Usage:")) << got.output;
    }
}

class tool_ping : public testing::TestWithParam<const char*> {};

TEST_P(tool_ping, answers_with_round_trips_and_code_0) {
    amalgam::engine server(GetParam());
    const auto got = amalgam_tool("ping " + server.address() + " --count 3 --interval 0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(has(got.output, "3 of 3 calls answered")) << got.output;
}

INSTANTIATE_TEST_SUITE_P(native, tool_ping, testing::Values("shm://", "tcp://127.0.0.1:0"));

TEST(tool_ping_nobody, ends_with_code_1_and_says_unreachable) {
    std::string gone;
    {
        amalgam::engine server("tcp://127.0.0.1:0");
        gone = server.address();
    }
    const auto got = amalgam_tool("ping " + gone + " --count 2 --interval 0 --timeout 2000");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(has(got.output, "0 of 2 calls answered")) << got.output;
}

class tool_perf : public testing::TestWithParam<const char*> {};

TEST_P(tool_perf, each_test_prints_one_json_object_with_every_field) {
    for (const char* test : {"message-latency", "rpc-latency", "rpc-rate", "put-bandwidth",
                             "get-bandwidth", "put-block-bandwidth", "get-block-bandwidth",
                             "bulk-pull", "bulk-pull-pooled", "bulk-push", "stream-rate"}) {
        const auto got = amalgam_tool(std::string("perf ") + test +
                                      " --seconds 0.05 --json --uri " + GetParam());
        ASSERT_EQ(got.code, 0) << got.output;
        const auto one = nlohmann::json::parse(got.output);
        EXPECT_EQ(one["test"], test);
        for (const char* field :
             {"uri", "size_bytes", "depth", "ops_per_s", "bytes_per_s", "p50_us", "p99_us"})
            EXPECT_TRUE(one.contains(field)) << one;
        EXPECT_GT(one["ops_per_s"].get<double>(), 0) << one;
    }
}

TEST_P(tool_perf, all_runs_every_test) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a process that ran ULTs may not fork one that has threads, says its checker";
#endif
    const auto got =
        amalgam_tool(std::string("perf all --seconds 0.05 --json --uri ") + GetParam());
    ASSERT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 11) << got.output;
}

INSTANTIATE_TEST_SUITE_P(native, tool_perf, testing::Values("shm://", "tcp://127.0.0.1:0"));

TEST(tool_perf_misuse, an_unknown_test_is_told_which_there_are) {
    const auto got = amalgam_tool("perf speed");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(has(got.output, "rpc-latency")) << got.output;
}

TEST(tool_perf_misuse, a_transport_there_is_not_is_told_in_one_sentence) {
    const auto got = amalgam_tool("perf message-latency --uri pigeon://loft --seconds 0.05");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(got.output.starts_with("amalgam: ")) << got.output;
    EXPECT_TRUE(has(got.output, "no transport \"pigeon\"")) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
}

TEST(tool_perf_misuse, a_transport_within_one_process_is_refused_with_the_reason) {
    const auto got = amalgam_tool("perf message-latency --uri loop://here --seconds 0.05");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(has(got.output, "two")) << got.output;
}
