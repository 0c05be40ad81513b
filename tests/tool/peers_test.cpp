// The bare libraries, if built: each answers every question it supports.
#include <cstdio>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "shell_word.hpp"

namespace {

using amalgam::shell_word;

struct asked {
    const char* test;
    int size;
    int depth;
    const char* more = "";
};

class peers : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(peers, answer_with_a_figure_for_every_size) {
    const auto& [library, over] = GetParam();
    const std::string program = AMALGAM_PEERS "/amalgam-peer-" + library;
    if (::access(program.c_str(), X_OK) != 0) GTEST_SKIP() << "built without " << library;
    for (const asked& one :
         {asked{"message-latency", 8, 1}, asked{"message-latency", 1 << 16, 1},
          asked{"put-bandwidth", 1 << 16, 2}, asked{"put-bandwidth", 1 << 16, 2, " delivered"},
          asked{"get-bandwidth", 1 << 16, 2}, asked{"get-block-bandwidth", 4096, 1}}) {
        const std::string command = shell_word(program) + " " + one.test + " " + over + " " +
                                    std::to_string(one.size) + " " + std::to_string(one.depth) +
                                    " 0.01" + one.more + " 2>&1 </dev/null";
        std::FILE* pipe = ::popen(command.c_str(), "r");
        ASSERT_NE(pipe, nullptr);
        std::string output;
        char piece[4096];
        for (std::size_t n; (n = std::fread(piece, 1, sizeof piece, pipe)) > 0;)
            output.append(piece, n);
        const int ended = ::pclose(pipe);
        if (WIFEXITED(ended) && WEXITSTATUS(ended) == 3) continue;  // Not supported.
        ASSERT_EQ(ended, 0) << command << ": " << output;
        const auto start = output.find('{');
        ASSERT_NE(start, std::string::npos) << command << ": " << output;
        const auto m = nlohmann::json::parse(output.substr(start, output.find('}') + 1 - start));
        EXPECT_EQ(m["test"], one.test);
        EXPECT_EQ(m["uri"], library + " " + over);
        EXPECT_EQ(m["size_bytes"], one.size);
        EXPECT_GT(m["bytes_per_s"].get<double>(), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(all, peers,
                         testing::Combine(testing::Values("ucx", "ofi", "mpi"),
                                          testing::Values("shm", "tcp")));

}  // namespace
