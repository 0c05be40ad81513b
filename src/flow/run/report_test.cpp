#include <string>

#include <gtest/gtest.h>

#include <amalgam/flow/report.hpp>

namespace amalgam {
namespace {

node_report node(const std::string& name, const std::string& process, double in, double out) {
    node_report made;
    made.name = name;
    made.process = process;
    made.taken = 1234567;
    made.seconds = 10;
    made.waited_for_input = in;
    made.waited_for_output = out;
    return made;
}

/// read -> filter in another group.
run_report two_groups(const node_report& read, const node_report& filter) {
    run_report report;
    report.nodes = {read, filter};
    channel_report way;
    way.from = read.name;
    way.to = filter.name;
    way.process = read.process;
    way.items = 1234567;
    way.bytes = 8;
    way.most_waiting = 3;
    way.unconsumed_bytes = 77;
    way.between_groups = true;
    report.channels = {way};
    return report;
}

TEST(run_report, names_the_node_that_is_busy_most) {
    const run_report report = two_groups(node("read", "A", 0, 9), node("filter", "B", 0.4, 0));
    EXPECT_EQ(report.bottleneck(), "\"filter\" in B, busy 96 % of the time");
}

TEST(run_report, does_not_name_a_node_that_was_quick_and_has_ended) {
    node_report read = node("read", "", 0, 0);
    read.seconds = 0.1;
    const run_report report = two_groups(read, node("filter", "", 1, 0));
    EXPECT_EQ(report.bottleneck(), "\"filter\", busy 90 % of the time");
    EXPECT_NE(report.text().find("   1 %"), std::string::npos) << report.text();
    EXPECT_EQ(report.text().find("100 %"), std::string::npos) << report.text();
}

TEST(run_report, names_the_last_of_nodes_that_are_as_busy) {
    EXPECT_EQ(two_groups(node("read", "", 0, 0), node("filter", "", 0, 0)).bottleneck(),
              "\"filter\", busy 100 % of the time");
}

TEST(run_report, names_a_node_that_is_busy_half_the_time_rather_than_a_channel) {
    EXPECT_EQ(two_groups(node("read", "A", 0, 5), node("filter", "B", 7, 0)).bottleneck(),
              "\"read\" in A, busy 50 % of the time");
}

TEST(run_report, names_the_way_between_two_groups_that_both_wait_for) {
    const run_report report = two_groups(node("read", "A", 0, 8), node("filter", "B", 7, 0));
    EXPECT_EQ(report.bottleneck(),
              "the channel from \"read\" in A to \"filter\" in B: the sender waits for room 80 % "
              "of the time, the receiver for items 70 %");
}

TEST(run_report, of_nothing_names_nothing) {
    EXPECT_EQ(run_report{}.bottleneck(), "");
    EXPECT_EQ(run_report{}.line(), "0.0 s, 0 items at the end of the graph");
}

TEST(run_report, is_read_back_from_its_json) {
    run_report report = two_groups(node("read", "", 1.5, 2), node("fil\"ter", "B.1", 0.25, 0));
    report.nodes[1].inside = "read";
    EXPECT_EQ(parse_run_report(report.json()).value(), report);
    for (const char* wrong :
         {"", "7", "{}", R"({"nodes": [{}], "channels": []})", R"({"nodes": 3, "channels": []})"})
        EXPECT_FALSE(parse_run_report(wrong).ok()) << wrong;
}

TEST(run_report, one_long_name_does_not_widen_every_line) {
    run_report report = two_groups(node("read", "A", 0, 9), node("filter", "B.0", 0.4, 0));
    report.nodes.resize(100, report.nodes.front());
    report.nodes.push_back(node(std::string(10'000, 'n'), std::string(10'000, 'p'), 0, 0));
    report.channels.front().to = report.nodes.back().name;
    EXPECT_LT(report.text().size(), 100'000u);
}

TEST(run_report, of_deep_values_is_read_without_them) {
    const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
    const auto got =
        parse_run_report(R"({"nodes": [], "channels": [], "more": )" + deep + "}").value();
    EXPECT_EQ(got, run_report{});
}

TEST(run_report, takes_nothing_for_a_count_that_is_none) {
    run_report report = two_groups(node("read", "", 1.5, 2), node("filter", "", 0.25, 0));
    report.nodes[0].taken = 4711;
    report.channels[0].bytes = 4712;
    const std::string json = report.json();
    ASSERT_TRUE(parse_run_report(json).ok());
    for (const char* count : {"4711", "4712"}) {
        for (const char* wrong : {"-1", "2.7", "1e300", "true", "null", "18446744073709551616"}) {
            std::string changed = json;
            changed.replace(changed.find(count), 4, wrong);
            const auto read = parse_run_report(changed);
            EXPECT_EQ(read.code().code, errc::invalid) << changed;
        }
    }
}

TEST(run_report, is_a_table_for_people) {
    const run_report report = two_groups(node("read", "A", 0, 9), node("filter", "B.0", 0.4, 0));
    const std::string text = report.text();
    for (const char* part : {"read    A        ", "1,234,567", "  90 %", "read -> filter",
                             "\nbottleneck: \"filter\" in B.0"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(run_report, is_numbers_with_names) {
    const metric_snapshot all =
        to_metrics(two_groups(node("read", "A", 0, 9), node("filter", "B", 0.5, 0)));
    EXPECT_EQ(all.value("amalgam_flow_node_taken_total", {{"node", "read"}}), 1234567);
    EXPECT_EQ(all.value("amalgam_flow_node_busy_seconds_total", {{"node", "filter"}}), 9.5);
    EXPECT_EQ(all.value("amalgam_flow_node_waited_for_output_seconds_total", {{"node", "read"}}),
              9);
    const std::vector<metric_label> way{{"from", "read"}, {"to", "filter"}};
    EXPECT_EQ(all.value("amalgam_flow_channel_bytes_total", way), 8);
    EXPECT_EQ(all.value("amalgam_flow_channel_unconsumed_bytes", way), 77);
    EXPECT_EQ(to_metrics(run_report{}).families.size(), 0u);
}

}  // namespace
}  // namespace amalgam
