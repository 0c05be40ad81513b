// `amalgam run` with real processes: its output, its exit code, and that nothing is left behind.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/flow/report.hpp>

#include "conformance/child_process.hpp"
#include "conformance/slow_build.hpp"
#include "contains.hpp"
#include "flow/graph/random_graph.hpp"
#include "flow/graph/random_pipeline.hpp"
#include "flow/launcher/launcher_testing.hpp"
#include "flow/run/reports_testing.hpp"
#include "shell_word.hpp"

namespace amalgam {
namespace {

TEST_F(launcher, runs_every_group_and_labels_its_output) {
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(output, "[G3] got 1000\n");
}

TEST_F(launcher, groups_that_other_hosts_can_reach_run_with_keys_of_the_run) {
    write_config(R"({"groups": {"G1": {"endpoint": "tcp://0.0.0.0:0"},
                                "G2": {"endpoint": "tcp://0.0.0.0:0", "replicas": 2},
                                "G3": {"endpoint": "tcp://127.0.0.1:0"}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_TRUE(output.starts_with("[G3] got ")) << output;
    EXPECT_EQ(run({"count"}, {"--insecure"}).code, 0);
}

TEST_F(launcher, groups_over_libfabric_that_other_hosts_can_reach_run_with_keys_of_the_run_too) {
    // G1 has a port of libfabric to call by, and G3 one of tcp.
    write_config(R"({"groups": {"G1": {"endpoint": "tcp://0.0.0.0:0"},
                                "G2": {"endpoint": "ofi+tcp://0.0.0.0:0"},
                                "G3": {"endpoint": "ofi+tcp://0.0.0.0:0"}}})");
    auto [code, output] = run({"count"});
    if (contains(output, "there is no transport")) GTEST_SKIP() << "built without ofi";
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(output, "[G3] got 1000\n");
    EXPECT_EQ(run({"count"}, {"--insecure"}).code, 0);
}

TEST_F(launcher, groups_with_keys_of_the_run_reach_those_with_credentials_of_the_user_and_back) {
    make_key(folder_ + "/lab", {.name = "lab", .authority = true});
    for (const std::string name : {"one", "two"}) {
        make_key(folder_ + "/" + name, {.name = name, .hosts = {"127.0.0.1"}});
        sign_key(folder_ + "/" + name, folder_ + "/lab");
    }
    const std::string keys = R"("endpoint": "tcp+tls://127.0.0.1:0)";
    const std::string one = keys + "?credentials=" + folder_ + "/one\"";
    const std::string two = keys + "?credentials=" + folder_ + "/two\"";
    const std::string none = keys + "\"", shared = R"("endpoint": "shm://")";
    const std::vector<std::vector<std::string>> all{{one, none, two},
                                                    {none, one, none},
                                                    {one, two, one},
                                                    {shared, none, one},
                                                    {one, none, shared}};
    for (const auto& each : all) {
        write_config("{\"groups\": {\"G1\": {" + each[0] + "}, \"G2\": {" + each[1] +
                     "}, \"G3\": {" + each[2] + "}}}");
        auto [code, output] = run({"count"});
        EXPECT_EQ(code, 0) << output;
        EXPECT_EQ(output, "[G3] got 1000\n") << each[0] << each[1] << each[2];
        EXPECT_EQ(run({"loop"}).code, 0) << each[0] << each[1] << each[2];
    }
}

TEST_F(launcher, a_group_that_never_tells_its_key_is_named) {
    write_config(R"({"groups": {"G1": {"endpoint": "tcp://0.0.0.0:0"},
                                "G2": {"endpoint": "tcp://0.0.0.0:0"},
                                "G3": {"endpoint": "tcp://0.0.0.0:0"}}})");
    auto [code, output] = run({"absent"});
    EXPECT_EQ(code, 1);
    EXPECT_TRUE(contains(output, "ended without running its part of the graph")) << output;
    EXPECT_TRUE(contains(output, "group G2 (")) << output;
}

TEST_F(launcher, an_endpoint_that_other_hosts_can_reach_without_keys_is_refused_with_its_group) {
    write_config(R"({"groups": {"G1": {"endpoint": "shm://"}, "G2": {"endpoint": "shm://"},
                                "G3": {"endpoint": "tcp://0.0.0.0:0?insecure=no"}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 2);
    EXPECT_TRUE(
        contains(output, "group G3: uri \"tcp://0.0.0.0:0?insecure=no\": other hosts can reach"))
        << output;
}

TEST_F(launcher, output_that_cannot_be_written_is_told_and_holds_up_nothing) {
    for (const char* where : {">/dev/full", ">&-", "<&- >&-"}) {
        child_process launched = child_process::run(
            {"/bin/sh", "-c",
             std::string("exec 2>") + folder_ + "/said; exec " + shell_word(AMALGAM_TOOL) +
                 " run -c " + folder_ + "/c.json -- " + shell_word(FLOW_TEST_PROGRAM) + " count " +
                 where});
        EXPECT_EQ(launched.join(), 1) << where;
        std::ostringstream said;
        said << std::ifstream(folder_ + "/said").rdbuf();
        EXPECT_TRUE(contains(said.str(), "standard output cannot be written"))
            << where << said.str();
    }
}

TEST_F(launcher, view_shows_only_the_groups_asked_for) {
    auto [code, output] = run({"count"}, {"--view", "G1,G2"});
    EXPECT_EQ(code, 0);
    EXPECT_EQ(output, "");
}

TEST_F(launcher, a_group_that_view_names_wrongly_is_refused) {
    auto [code, output] = run({"count"}, {"--view", "G1,G9"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output,
              "amalgam: --view names the group \"G9\", which the config does not have, expected "
              "some of: G1, G2, G3\n");
}

TEST_F(launcher, a_wrong_config_starts_nothing) {
    write_config(R"({"groups": {"G1": {"endpoint": 7}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output, "amalgam: " + folder_ +
                          "/c.json: groups.G1.endpoint is 7, expected a URI; "
                          "example: \"tcp://127.0.0.1:0\"\n");
}

TEST_F(launcher, seconds_that_are_no_number_are_refused) {
    for (const char* option : {"--grace", "--stats", "--silence"}) {
        for (const char* seconds : {"nan", "-1", "inf", "soon"}) {
            auto [code, output] = run({"count"}, {std::string(option) + "=" + seconds});
            EXPECT_NE(code, 0) << option << " " << seconds;
            EXPECT_TRUE(contains(
                output, std::string("\"") + seconds + "\" is not a number of seconds from"))
                << output;
        }
    }
}

TEST_F(launcher, control_bytes_of_names_and_of_what_nodes_say_do_not_reach_the_terminal) {
    auto [code, output] = run({"colors"});
    EXPECT_EQ(code, 1) << output;
    EXPECT_EQ(output.find('\x1b'), std::string::npos) << output;
    EXPECT_TRUE(contains(output, "the node \"middle\" failed: red \\x1b[31m")) << output;
}

TEST_F(launcher, an_endpoint_that_stays_in_one_process_is_refused) {
    write_config(R"({"groups": {"G1": {"endpoint": "loop://x"}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 2);
    EXPECT_TRUE(
        contains(output, "groups.G1.endpoint is \"loop://x\", which stays inside one process"));
}

TEST_F(launcher, endpoints_of_ranks_outside_of_mpirun_are_refused_with_the_right_command) {
    write_config(R"({"groups": {"G1": {"endpoint": "mpi+static"}, "G2": {"endpoint": "shm://"}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output, std::string("amalgam: groups.G1.endpoint is \"mpi+static\", which is only "
                                  "for processes that mpirun starts, expected a start by mpirun; "
                                  "example: mpirun -n 2 amalgam run -c config.json -- ") +
                          FLOW_TEST_PROGRAM + " count\n");
}

TEST_F(launcher, a_program_that_is_not_there_is_named) {
    child_process launched = child_process::run(
        {AMALGAM_TOOL, "run", "-c", folder_ + "/c.json", "--", "./no-such-program"});
    EXPECT_EQ(launched.output().rfind("amalgam: the program \"./no-such-program\" cannot be run "
                                      "(No such file or directory)",
                                      0),
              0u);
    EXPECT_EQ(launched.join(), 2);
}

TEST_F(launcher, a_node_in_no_group_is_refused_once_with_its_name) {
    auto [code, output] = run({"nowhere"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output,
              "amalgam run: the node \"to\" is in no group, expected one; "
              "example: graph.group(\"G1\").add(to)\n");
}

TEST_F(launcher, a_node_in_two_groups_is_refused_once_with_its_name) {
    auto [code, output] = run({"twice"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output,
              "amalgam run: the node \"middle\" is in the groups \"G2\" and \"G1\", "
              "expected one\n");
}

TEST_F(launcher, groups_that_built_different_graphs_are_refused) {
    auto [code, output] = run({"differ"});
    EXPECT_EQ(code, 2);
    EXPECT_EQ(output,
              "amalgam run: groups G1 and G2 built different graphs, expected the same "
              "nodes, pipelines and groups in every process\n");
}

TEST_F(launcher, an_endpoint_that_cannot_be_opened_is_refused_with_its_group) {
    write_config(R"({"groups": {"G1": {"endpoint": "shm://"}, "G2": {"endpoint": "nosuch://x"},
                                "G3": {"endpoint": "shm://"}}})");
    auto [code, output] = run({"count"});
    EXPECT_EQ(code, 2) << output;
    EXPECT_EQ(lines_with(output, "amalgam run: group G"), 1u) << output;
    EXPECT_TRUE(contains(output, "nosuch")) << output;
}

TEST_F(launcher, a_node_that_throws_is_blamed_by_name) {
    auto [code, output] = run({"throw"});
    EXPECT_EQ(code, 1);
    EXPECT_EQ(lines_with(output, "amalgam run: group G2 (pid "), 1u) << output;
    EXPECT_TRUE(
        contains(output, ": the node \"middle\" failed: no more than 100; stopped the others\n"))
        << output;
}

TEST_F(launcher, tells_what_each_node_did_and_what_held_the_others_up) {
    const std::string file = folder_ + "/report.json";
    const auto [code, output] = run({"count"}, {"--stats", "--report", file});
    EXPECT_EQ(code, 0) << output;
    EXPECT_TRUE(contains(output, "bottleneck: ")) << output;
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    const run_report report = parse_run_report(text.str()).value();
    ASSERT_EQ(report.nodes.size(), 3u);
    for (const node_report& node : report.nodes) {
        EXPECT_EQ(node.taken, node.name == "from" ? 0u : 1000u);
        EXPECT_EQ(node.given, node.name == "to" ? 0u : 1000u);
        EXPECT_TRUE(contains(output, "\n" + node.name)) << output;
    }
    EXPECT_EQ(report.nodes[1].process, "G2");
    ASSERT_EQ(report.channels.size(), 2u);
    EXPECT_EQ(report.channels[0].bytes, 4000u);
    EXPECT_EQ(report.channels[0].waiting, 0u);
    EXPECT_TRUE(report.channels[0].between_groups);
}

TEST_F(launcher, a_report_that_cannot_be_written_is_told) {
    const auto [code, output] = run({"count"}, {"--report", folder_ + "/none/report.json"});
    EXPECT_EQ(code, 2) << "before anything was started";
    EXPECT_TRUE(contains(output, "which cannot be written")) << output;
    EXPECT_FALSE(contains(output, "got 1000")) << output;
    EXPECT_EQ(run({"count"}, {"--report", folder_}).code, 2) << "it is a folder";
}

TEST_F(launcher, a_group_that_leaves_before_the_run_ends_the_others) {
    auto [code, output] = run({"absent"});
    EXPECT_EQ(code, 1);
    EXPECT_TRUE(contains(output, "amalgam run: group G2 (pid ")) << output;
    EXPECT_TRUE(
        contains(output, ") ended without running its part of the graph; stopped the others\n"))
        << output;
}

TEST_F(launcher, returns_the_exit_code_of_the_group_that_failed) {
    auto [code, output] = run({"exit"});
    EXPECT_EQ(code, 7);
    EXPECT_TRUE(contains(output, ") ended with exit code 7; stopped the others\n")) << output;
}

TEST_F(launcher_with_reports, a_killed_group_stops_the_others_and_is_blamed) {
    child_process launched = start("endless");
    auto processes = wait_for_processes(3);
    pid_t killed = processes.find("G2")->second;
    ::kill(killed, SIGKILL);
    std::string output = launched.output();
    EXPECT_EQ(launched.join(), 128 + SIGKILL);
    EXPECT_TRUE(contains(output, "amalgam run: group G2 (pid " + std::to_string(killed) +
                                     ") ended with signal 9 (killed); stopped the others\n"))
        << output;
    wait_until_nothing_is_left();
}

TEST_F(launcher, the_end_of_an_orphan_is_nobodys_failure) {
    const auto [code, output] = run({"orphan"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(output, "");
}

TEST_F(launcher_with_reports, of_several_that_fail_alike_the_first_to_end_is_blamed) {
    child_process launched = start("asked");
    const pid_t first = wait_for_processes(3).find("G2")->second;
    ::kill(first, SIGUSR1);
    const std::string output = launched.output();
    EXPECT_EQ(launched.join(), 7);
    EXPECT_TRUE(contains(output, "amalgam run: group G2 (pid " + std::to_string(first) +
                                     ") ended with exit code 7; stopped the others\n"))
        << output;
    wait_until_nothing_is_left();
}

TEST_F(launcher_with_reports, nothing_is_left_when_the_launcher_is_killed) {
    child_process launched = start("endless");
    wait_for_processes(3);
    launched.kill();
    wait_until_nothing_is_left();
}

TEST_F(launcher_with_reports, nothing_is_left_when_its_supervising_process_is_killed) {
    child_process launched = start("endless");
    auto processes = wait_for_processes(3);
    std::ifstream stat("/proc/" + std::to_string(processes.begin()->second) + "/stat");
    std::string word, state;
    pid_t supervisor = 0;
    stat >> word >> word >> state >> supervisor;
    ASSERT_NE(supervisor, launched.pid());
    ::kill(supervisor, SIGKILL);
    std::string output = launched.output();
    EXPECT_EQ(launched.join(), 128 + SIGKILL);
    EXPECT_TRUE(contains(output, "the process that supervised the groups was killed")) << output;
    wait_until_nothing_is_left();
}

TEST_F(launcher_with_reports, processes_that_left_their_session_end_too) {
    {
        child_process launched = start("parent");
        wait_for_processes(6);
        launched.kill();
        wait_until_nothing_is_left();
    }
    child_process launched = start("parent");
    auto processes = wait_for_processes(6);
    launched.signal(SIGTERM);
    launched.output();
    EXPECT_EQ(launched.join(), 128 + SIGTERM);
    wait_until_nothing_is_left();
}

TEST_F(launcher_with_reports, signals_end_the_run_with_their_own_code) {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
        child_process launched = start("endless");
        wait_for_processes(3);
        launched.signal(signal);
        EXPECT_TRUE(contains(launched.output(), ": stopped all groups\n"));
        EXPECT_EQ(launched.join(), 128 + signal);
        wait_until_nothing_is_left();
    }
}

TEST_F(launcher_with_reports, a_group_that_ignores_the_request_to_end_is_killed_after_the_grace) {
    child_process launched = start("stubborn", {"--grace", "0.05"});
    wait_for_processes(3);
    launched.signal(SIGTERM);
    launched.output();
    EXPECT_EQ(launched.join(), 128 + SIGTERM);
    wait_until_nothing_is_left();
}

TEST_F(launcher_with_reports, asked_twice_to_end_it_waits_for_nobody) {
    child_process launched = start("stubborn", {"--grace", "1000"});
    wait_for_processes(3);
    launched.signal(SIGTERM);
    launched.signal(SIGINT);
    EXPECT_TRUE(contains(launched.output(),
                         "amalgam run: received a second signal to end; stopped all groups\n"));
    EXPECT_EQ(launched.join(), 128 + SIGKILL);
    wait_until_nothing_is_left();
}

/// Random pipelines as real processes: compares the sinks' output with a plain loop.
class spread : public launcher, public testing::WithParamInterface<const char*> {
protected:
    void compare(std::uint64_t seed, bool replicas) {
        auto plan = random_pipeline::draw(seed, replicas);
        write_config(random_pipeline::config_text(
            plan, [](std::size_t, std::size_t) { return std::string(GetParam()); }));
        std::string file = folder_ + "/got";
        auto [code, output] = run({"random", std::to_string(seed), replicas ? "1" : "0", file});
        ASSERT_EQ(code, 0) << "seed " << seed << ": " << output;
        EXPECT_EQ(output, "");
        std::vector<std::string> got, expected;
        for (std::size_t r = 0; r < plan.replicas.back(); ++r) {
            std::ifstream in(file + "." + std::to_string(r));
            for (std::string line; std::getline(in, line);)
                got.push_back(line);
        }
        for (const auto& one : random_pipeline::expected(plan))
            expected.push_back(std::to_string(one.value) + " " + one.text);
        if (plan.replicated()) {
            std::sort(got.begin(), got.end());
            std::sort(expected.begin(), expected.end());
        }
        ASSERT_EQ(got, expected) << "seed " << seed;
    }
};

TEST_P(spread, gives_what_a_plain_loop_gives_wherever_the_pipeline_is_cut) {
    for (std::uint64_t seed = 2000; seed < (conformance::slow_build ? 2003 : 2010); ++seed)
        compare(seed, false);
}

TEST_P(spread, gives_the_same_items_with_many_senders_and_many_receivers) {
    for (std::uint64_t seed = 3000; seed < (conformance::slow_build ? 3002 : 3008); ++seed)
        compare(seed, true);
}

TEST_P(spread, gives_what_a_plain_loop_gives_wherever_blocks_are_cut) {
    for (std::uint64_t seed = 4000; seed < (conformance::slow_build ? 4006 : 4080); ++seed) {
        const auto plan = random_graph::draw(seed, 6);
        if (plan.groups == 1) continue;
        write_config(random_graph::config_text(plan, [](const auto&) { return GetParam(); }));
        const std::string file = folder_ + "/got";
        const auto [code, output] = run({"blocks", std::to_string(seed), file});
        ASSERT_EQ(code, 0) << "seed " << seed << ": " << output;
        EXPECT_EQ(output, "");
        std::vector<std::string> got, expected;
        for (const std::string& group : random_graph::groups_of(plan)) {
            std::ifstream in(file + "." + group);
            for (std::string line; std::getline(in, line);)
                got.push_back(line);
        }
        for (const std::uint64_t value : random_graph::expected(plan))
            expected.push_back(std::to_string(value));
        std::sort(got.begin(), got.end());
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(got, expected) << "seed " << seed;
    }
}

TEST_P(spread, ends_with_a_message_and_leaves_nothing_when_any_group_is_killed) {
    for (std::uint64_t seed = 5000; seed < (conformance::slow_build ? 5006 : 5040); ++seed) {
        const auto plan = random_graph::draw(seed, 6);
        const auto groups = random_graph::groups_of(plan);
        if (groups.size() < 2) continue;
        detail::test_reports reports(folder_ + "/fifo");
        write_config(random_graph::config_text(plan, [](const auto&) { return GetParam(); }));
        child_process launched = start({"endless-blocks", std::to_string(seed), reports.path()});
        // Killed while joining in one run, while items flow in others: reports of sinks come next.
        const auto said = reports.wait_for(static_cast<long>(groups.size() + seed % 4));
        const std::map<std::string, pid_t> processes(said.begin(), said.end());
        const auto killed = std::next(processes.begin(), static_cast<long>(seed % groups.size()));
        ::kill(killed->second, SIGKILL);
        const std::string output = launched.output();
        ASSERT_EQ(launched.join(), 128 + SIGKILL) << "seed " << seed << ": " << output;
        EXPECT_EQ(output, "amalgam run: group " + killed->first + " (pid " +
                              std::to_string(killed->second) +
                              ") ended with signal 9 (killed); stopped the others\n")
            << "seed " << seed;
        reports.wait_until_nothing_is_left();
    }
}

INSTANTIATE_TEST_SUITE_P(shm, spread, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, spread, testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam
