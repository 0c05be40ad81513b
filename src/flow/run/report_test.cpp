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

using cause = bottleneck_report::cause;

TEST(run_report, names_the_network_if_both_ends_wait_and_much_is_under_way) {
    run_report report = two_groups(node("read", "A", 0, 8), node("filter", "B", 7, 0));
    report.channels[0].items = 1000;
    report.channels[0].bytes = 64'000'000;
    report.channels[0].most_waiting = 30;
    const bottleneck_report neck = report.explain();
    EXPECT_EQ(neck.why, cause::network);
    EXPECT_EQ(neck.node + neck.process + neck.to_node + neck.to_process, "readAfilterB");
    EXPECT_EQ(neck.sentence,
              "the network from \"read\" in A to \"filter\" in B: the sender waits for room 80 % "
              "of the time, the receiver for items 70 %, at 6.4 MB/s");
    EXPECT_NE(neck.advice.find("window_bytes"), std::string::npos) << neck.advice;
}

TEST(run_report, names_missing_credit_if_both_ends_wait_and_little_may_be_under_way) {
    run_report report = two_groups(node("read", "A", 0, 8), node("filter", "B", 7, 0));
    report.channels[0].most_waiting = 1;
    const bottleneck_report neck = report.explain();
    EXPECT_EQ(neck.why, cause::credit);
    EXPECT_EQ(neck.sentence,
              "the channel from \"read\" in A to \"filter\" in B: the sender waits for room 80 % "
              "of the time, the receiver for items 70 %, with at most 1 item under way");
    EXPECT_NE(neck.advice.find("on_demand(k)"), std::string::npos) << neck.advice;
    // Within a process, too, but not of nodes that take turns on a core.
    report.channels[0].between_groups = false;
    EXPECT_EQ(report.explain().why, cause::credit);
    report.channels[0].most_waiting = 1024;
    EXPECT_EQ(report.explain().why, cause::work);
}

TEST(run_report, a_full_queue_before_a_slow_node_is_not_taken_for_the_network) {
    run_report report = two_groups(node("read", "A", 0, 8), node("filter", "B", 0, 0));
    report.channels[0].most_waiting = 1'000'000;
    report.nodes[1].waited_for_lock = 9;
    EXPECT_EQ(report.explain().why, cause::lock);
    EXPECT_EQ(report.explain().node, "filter");
}

TEST(run_report, a_source_that_has_finished_is_not_the_bottleneck) {
    run_report report = two_groups(node("read", "A", 0, 0), node("filter", "B", 6, 0));
    report.nodes[0].ended = true;
    EXPECT_EQ(report.explain().node, "filter");
    report.nodes[1].ended = true;  // At the end, it is who took longest.
    EXPECT_EQ(report.explain().node, "read");
}

TEST(run_report, tells_apart_what_a_busy_node_waits_for) {
    const auto found = [](double node_report::*wait) {
        run_report report = two_groups(node("read", "A", 0, 9), node("filter", "B", 0, 0));
        report.nodes[1].*wait = 7;
        return report.explain();
    };
    const bottleneck_report core = found(&node_report::waited_for_core);
    EXPECT_EQ(core.why, cause::core);
    EXPECT_EQ(core.sentence, "\"filter\" in B, which waited for a core 70 % of the time");
    EXPECT_NE(core.advice.find("cores"), std::string::npos);
    const bottleneck_report lock = found(&node_report::waited_for_lock);
    EXPECT_EQ(lock.why, cause::lock);
    EXPECT_EQ(lock.sentence, "\"filter\" in B, which waited for a lock 70 % of the time");
    const bottleneck_report outside = found(&node_report::waited_outside);
    EXPECT_EQ(outside.why, cause::outside);
    EXPECT_EQ(outside.sentence,
              "\"filter\" in B, which waited for something outside the graph 70 % of the time");
    EXPECT_NE(outside.advice.find("farm"), std::string::npos) << outside.advice;

    run_report little = two_groups(node("read", "A", 0, 9), node("filter", "B", 0, 0));
    little.nodes[1].waited_for_lock = 2;
    EXPECT_EQ(little.explain().why, cause::work);
}

TEST(run_report, advises_sources_otherwise_than_stages) {
    run_report report = two_groups(node("read", "A", 0, 0), node("filter", "B", 9, 0));
    EXPECT_NE(report.explain().advice.find("workers"), std::string::npos);
    report.nodes[0].taken = 0;
    report.nodes[0].given = 7;
    EXPECT_NE(report.explain().advice.find("several sources"), std::string::npos);
    EXPECT_NE(report.text().find("\ntry: make it faster"), std::string::npos) << report.text();
}

TEST(run_report, since_an_earlier_one_tells_only_what_came_after) {
    run_report before = two_groups(node("read", "A", 0, 1), node("filter", "B", 2, 0));
    before.processes.push_back({"A", 10, 4, 100, 2});
    run_report now = before;
    now.nodes[0].ended = true;  // It was at the end already.
    now.nodes[1].seconds += 2;
    now.nodes[1].taken += 7;
    now.nodes[1].waited_for_input += 0.5;
    now.channels[0].items += 7;
    now.channels[0].bytes += 70;
    now.processes[0] = {"A", 12, 5, 50, 2};
    now.nodes.push_back(node("late", "C", 9.9, 0));
    const run_report passed = now.since(before);
    EXPECT_EQ(passed.nodes[0].seconds, 0);
    EXPECT_EQ(passed.nodes[1].taken, 7u);
    EXPECT_EQ(passed.nodes[1].seconds, 2);
    EXPECT_EQ(passed.nodes[1].waited_for_input, 0.5);
    EXPECT_EQ(passed.channels[0].items, 7u);
    EXPECT_EQ(passed.channels[0].bytes, 70u);
    EXPECT_EQ(passed.channels[0].most_waiting, 3u);
    EXPECT_EQ(passed.processes[0], (process_report{"A", 2, 1, 50, 2}));
    EXPECT_EQ(passed.nodes[2], now.nodes[2]);
    EXPECT_EQ(passed.explain().node, "filter");
    EXPECT_EQ(before.since(now).nodes[1].taken, 0u);  // Never below 0.
}

TEST(run_report, of_nothing_names_nothing) {
    EXPECT_EQ(run_report{}.bottleneck(), "");
    EXPECT_EQ(run_report{}.line(), "0.0 s, 0 items at the end of the graph");
}

TEST(run_report, is_read_back_from_its_json) {
    run_report report = two_groups(node("read", "", 1.5, 2), node("fil\"ter", "B.1", 0.25, 0));
    report.nodes[1].inside = "read";
    report.nodes[1].ended = true;
    report.nodes[0].waited_for_core = 0.5;
    report.nodes[0].waited_for_lock = 0.25;
    report.nodes[0].waited_outside = 0.125;
    report.processes.push_back({"B.1", 3, 2.5, 4096, 2});
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
