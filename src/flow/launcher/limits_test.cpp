// Runs that would wait forever for a group that does not come or no longer answers.
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

#include <amalgam/flow/report.hpp>

#include "contains.hpp"
#include "flow/launcher/launcher_testing.hpp"

namespace amalgam {
namespace {

run_report report_in(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return parse_run_report(text.str()).value();
}

TEST_F(launcher, a_group_that_never_runs_its_part_is_named_after_the_join_limit) {
    outcome got = run({"late"});
    while (contains(got.output, "amalgam run: group G1 (pid "))  // Late, too, on a busy machine.
        got = run({"late"});
    const auto& [code, output] = got;
    EXPECT_EQ(code, 1);
    EXPECT_EQ(lines_with(output, "amalgam run: group G2 (pid "), 1u) << output;
    EXPECT_TRUE(contains(
        output,
        ") did not start its part of the graph within 0.2 s, expected every process to call run()"))
        << output;
}

TEST_F(launcher, programs_of_which_none_runs_a_graph_are_no_success) {
    child_process launched =
        child_process::run({AMALGAM_TOOL, "run", "-c", folder_ + "/c.json", "--view", "G2", "--",
                            "sh", "-c", "echo $AMALGAM_GROUP $AMALGAM_REPLICA"});
    const std::string output = launched.output();
    EXPECT_EQ(lines_with(output, "[G2] G2 0"), 1u) << output;
    EXPECT_EQ(lines_with(output,
                         "amalgam run: no group has run its part of the graph, expected a "
                         "program that calls run() or run_main(); \"sh\" ended without"),
              1u)
        << output;
    EXPECT_EQ(launched.join(), 1);
}

TEST_F(launcher, a_graph_that_is_only_shown_is_a_success) {
    child_process launched =
        child_process::run({"env", "AMALGAM_SHOW=json", AMALGAM_TOOL, "run", "-c",
                            folder_ + "/c.json", "--", FLOW_TEST_PROGRAM, "count"});
    EXPECT_EQ(lines_with(launched.output(), "\"nodes\""), 3u);
    EXPECT_EQ(launched.join(), 0);
}

TEST_F(launcher, a_loop_over_groups_on_different_transports_ends) {
    write_config(R"({"groups": {"G1": {"endpoint": "tcp://127.0.0.1:0"},
                                "G2": {"endpoint": "tcp://127.0.0.1:0"},
                                "G3": {"endpoint": "shm://"}}})");
    const auto [code, output] = run({"loop"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(output, "[G3] got 100\n");
}

TEST_F(launcher, the_bottleneck_is_who_works_and_not_who_waits_for_the_others_to_end) {
    const std::string file = folder_ + "/report.json";
    const auto [code, output] = run({"slow"}, {"--report", file});
    EXPECT_EQ(code, 0) << output;
    const run_report report = report_in(file);
    EXPECT_EQ(report.bottleneck().rfind("\"to\" in G3, ", 0), 0u) << report.text();
}

TEST_F(launcher, the_bottleneck_is_credit_where_few_items_may_be_under_way) {
    const std::string file = folder_ + "/report.json";
    const auto [code, output] = run({"demand"}, {"--report", file});
    EXPECT_EQ(code, 0) << output;
    const run_report report = report_in(file);
    const bottleneck_report neck = report.explain();
    EXPECT_EQ(neck.why, bottleneck_report::cause::credit) << report.text();
    EXPECT_EQ(neck.node, "from") << report.text();
}

TEST_F(launcher, a_page_that_other_hosts_could_open_is_refused_before_anything_starts) {
    for (const char* each : {"0.0.0.0:0", "10.1.2.3:8642", "nowhere"}) {
        const auto [code, output] = run({"count"}, {"--web", each});
        EXPECT_EQ(code, 2) << output;
        EXPECT_EQ(lines_with(output, "amalgam run: --web: "), 1u) << output;
        EXPECT_EQ(lines_with(output, "example: 127.0.0.1:"), 1u) << output;
        EXPECT_EQ(lines_with(output, "[G3]"), 0u) << output;
    }
}

TEST_F(launcher, a_page_that_nobody_opens_changes_nothing) {
    const auto [code, output] = run({"count"}, {"--web"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(lines_with(output, "amalgam run: the live page of the run is http://127.0.0.1:"), 1u)
        << output;
    EXPECT_EQ(lines_with(output, "[G3] "), 1u) << output;
}

TEST_F(launcher, a_run_that_is_cut_short_is_reported_too) {
    const std::string file = folder_ + "/report.json";
    const auto [code, output] = run({"cut"}, {"--report", file});
    EXPECT_EQ(code, 128 + SIGKILL) << output;
    const run_report report = report_in(file);
    ASSERT_EQ(report.nodes.size(), 3u) << report.text();
    EXPECT_EQ(report.nodes[2].name, "to");
    EXPECT_EQ(report.explain().node, "to") << report.text();
    EXPECT_EQ(report.explain().why, bottleneck_report::cause::outside) << report.text();
    EXPECT_EQ(report.nodes[0].given, 100u);
}

TEST_F(launcher, a_second_run_in_one_process_is_refused) {
    const auto [code, output] = run({"again"});
    EXPECT_EQ(code, 1);
    EXPECT_TRUE(contains(output, "[G3] got 1\n")) << output;
    EXPECT_TRUE(contains(output,
                         "a graph was run a second time in a process that amalgam run "
                         "started, expected one run per process"))
        << output;
}

class stopped_group : public launcher, public testing::WithParamInterface<const char*> {};

TEST_P(stopped_group, ends_the_others_with_its_name) {
    const std::string endpoint = std::string("{\"endpoint\": \"") + GetParam() + "\"}";
    write_config("{\"groups\": {\"G1\": " + endpoint + ", \"G2\": " + endpoint +
                 ", \"G3\": " + endpoint + "}}");
    const auto [code, output] = run({"stopped"}, {"--grace", "0.1"});
    EXPECT_EQ(code, 1) << output;
    EXPECT_TRUE(contains(output, "lost contact with group G2 (it has not answered for 2 s)"))
        << output;
}

INSTANTIATE_TEST_SUITE_P(shm, stopped_group, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, stopped_group, testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam
