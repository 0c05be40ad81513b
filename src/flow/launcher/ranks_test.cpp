// A run whose processes are the ranks of an mpirun, or of the command in AMALGAM_TEST_RANKS.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using conformance::child_process;

class launcher_ranks : public testing::Test {
protected:
    void SetUp() override {
#if defined(__SANITIZE_THREAD__)
        GTEST_SKIP() << "PMIx has threads that ThreadSanitizer does not see";
#endif
        const char* named = std::getenv("AMALGAM_TEST_RANKS");
        words_ = "mpirun --oversubscribe";
        if (::geteuid() == 0) words_ += " --allow-run-as-root";
        if (named != nullptr) words_ = named;
        const std::string first = words_.substr(0, words_.find(' '));
        if (std::system(("command -v " + first + " >/dev/null").c_str()) != 0)
            GTEST_SKIP() << "there is no " << first;
        // Ignore leaks of PMIx at its end.
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        // Three processes on any number of processors.
        ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
        write_config(1);
    }

    void write_config(int replicas, const std::string& uri = "tcp://127.0.0.1:0") {
        const std::string endpoint = R"({"endpoint": ")" + uri + "\"";
        std::ofstream(config_) << R"({"groups": {"G1": )" << endpoint << R"(}, "G2": )" << endpoint
                               << R"(, "replicas": )" << replicas << R"(}, "G3": )" << endpoint
                               << "}}}";
    }

    struct outcome {
        int code;
        std::string output;
        long count(const std::string& line) const {
            std::istringstream lines(output);
            long found = 0;
            for (std::string one; std::getline(lines, one);)
                found += one == line ? 1 : 0;
            return found;
        }
    };
    outcome run(int ranks, std::vector<std::string> command) {
        std::istringstream words(words_ + " -n " + std::to_string(ranks));
        std::vector<std::string> argv;
        for (std::string word; words >> word;)
            argv.push_back(word);
        argv.insert(argv.end(), command.begin(), command.end());
        child_process ran = child_process::run(argv);
        std::string output = ran.output();
        return {ran.join(), output};
    }
    /// The program itself, with the config from its environment.
    outcome run_program(int ranks, const std::string& mode) {
        return run(ranks, {"env", "AMALGAM_CONFIG=" + config_, FLOW_TEST_PROGRAM, mode});
    }
    outcome run_tool(int ranks, const std::string& mode,
                     const std::vector<std::string>& options = {}) {
        std::vector<std::string> command{AMALGAM_TOOL, "run", "-c", config_};
        command.insert(command.end(), options.begin(), options.end());
        command.insert(command.end(), {"--", FLOW_TEST_PROGRAM, mode});
        return run(ranks, command);
    }

    const temp_folder own_;
    const std::string config_ = own_.with("c.json");
    std::string words_;
};

TEST_F(launcher_ranks, become_the_groups_in_their_order) {
    const outcome got = run_program(3, "count");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(got.output, "got 1000\n");
}

TEST_F(launcher_ranks, that_other_hosts_can_reach_tell_each_other_keys) {
    for (const char* uri : {"tcp://0.0.0.0:0", "tcp://0.0.0.0:0?insecure=yes"}) {
        write_config(1, uri);
        EXPECT_EQ(run_program(3, "count").output, "got 1000\n") << uri;
    }
    write_config(1, "tcp://0.0.0.0:0");
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{}, std::vector<std::string>{"--insecure"}})
        EXPECT_EQ(run_tool(3, "count", options).output, "got 1000\n");
    // Those that refuse are told once, before and after keys are exchanged.
    const outcome nowhere = run_program(3, "nowhere");
    EXPECT_EQ(nowhere.count("amalgam: the node \"to\" is in no group, expected one; "
                            "example: graph.group(\"G1\").add(to)"),
              1)
        << nowhere.output;
    const outcome differ = run_tool(3, "differ");
    EXPECT_EQ(differ.count("amalgam: groups G1 and G2 built different graphs, expected the same "
                           "nodes, pipelines and groups in every process"),
              1)
        << differ.output;
}

TEST_F(launcher_ranks, that_exchange_items_over_mpi_use_keys_of_the_run_where_the_uri_says_tls) {
    if (words_.find("mpirun") == std::string::npos)
        GTEST_SKIP() << "MPI of another starter is not tried";
    // Without keys it opens no port.
    write_config(1, "mpi+static+tls");
    const outcome got = run_tool(3, "count");
    if (got.output.find("there is no transport") != std::string::npos)
        GTEST_SKIP() << "built without mpi";
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(got.output, "got 1000\n");
}

TEST_F(launcher_ranks, become_replicas_too) {
    write_config(2);
    const outcome got = run_program(4, "count");
    EXPECT_EQ(got.code, 0) << got.output;
    // The last item may overtake others, which the other replica has.
    EXPECT_TRUE(got.output.starts_with("got ")) << got.output;
}

TEST_F(launcher_ranks, may_start_the_launcher_instead_of_the_program) {
    const outcome got = run_tool(3, "count");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(got.output, "got 1000\n");
    EXPECT_EQ(run_tool(3, "count", {"--view", "G1"}).output, "");
}

TEST_F(launcher_ranks, one_alone_that_is_a_launcher_starts_all_groups) {
    const outcome got = run_tool(1, "count");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(got.output, "[G3] got 1000\n");
}

TEST_F(launcher_ranks, of_a_wrong_count_are_told_once_which_command_is_right) {
    const std::string starter = words_.substr(0, words_.find(' '));
    const std::string right = starter == "srun" ? "srun --mpi=pmix -K" : starter;
    outcome got = run_program(2, "count");
    EXPECT_NE(got.code, 0);
    EXPECT_EQ(got.count("amalgam: " + starter + " started 2 processes, but " + config_ +
                        " has 3 (G1, G2, G3), expected the same number; example: " + right +
                        " -n 3 " + FLOW_TEST_PROGRAM + " count"),
              1)
        << got.output;
    got = run_tool(2, "count");
    EXPECT_NE(got.code, 0);
    EXPECT_EQ(got.count("amalgam: " + starter +
                        " started 2 processes, but the config has 3 (G1, G2, G3), expected the "
                        "same number; example: " +
                        right + " -n 3 " + AMALGAM_TOOL + " run -c " + config_ + " -- " +
                        FLOW_TEST_PROGRAM + " count"),
              1)
        << got.output;
}

TEST_F(launcher_ranks, that_built_different_graphs_are_refused_once) {
    const outcome got = run_tool(3, "differ");
    EXPECT_NE(got.code, 0);
    EXPECT_EQ(got.count("amalgam: groups G1 and G2 built different graphs, expected the same "
                        "nodes, pipelines and groups in every process"),
              1)
        << got.output;
}

TEST_F(launcher_ranks, whose_graph_does_not_fit_are_refused_once) {
    const outcome got = run_program(3, "nowhere");
    EXPECT_NE(got.code, 0);
    EXPECT_EQ(got.count("amalgam: the node \"to\" is in no group, expected one; "
                        "example: graph.group(\"G1\").add(to)"),
              1)
        << got.output;
}

TEST_F(launcher_ranks, run_one_graph_once) {
    const outcome got = run_program(3, "again");
    EXPECT_NE(got.code, 0);
    const std::string starter = words_.substr(0, words_.find(' '));
    EXPECT_GE(got.count("amalgam: a graph was run a second time in a process that " + starter +
                        " started, expected one run per process; put everything " +
                        "into one graph, or start " + starter + " again"),
              1)
        << got.output;
}

TEST_F(launcher_ranks, end_when_a_node_throws_and_its_words_are_told) {
    const outcome got = run_program(3, "throw");
    EXPECT_NE(got.code, 0);
    EXPECT_GE(got.count("amalgam: the node \"middle\" failed: no more than 100"), 1) << got.output;
}

}  // namespace
}  // namespace amalgam
