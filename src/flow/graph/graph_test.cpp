#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/flow/graph.hpp>

namespace amalgam {
namespace {

struct numbers : source<int> {
    void generate(outlet<int>&) {}
};
struct twice : stage<int, int> {
    void process(int n, outlet<int>& out) { out.send(2 * n); }
};
struct swallow : sink<int> {
    void consume(int) {}
};
struct not_serializable {
    std::shared_ptr<int> shared;
};

/// from -> middle -> to, connected, in no group.
struct three_nodes {
    graph g;
    block<void, int> from = g.add<numbers>("from");
    block<int, int> middle = g.add<twice>("middle");
    block<int, void> to = g.add<swallow>("to");
    three_nodes() { g.pipeline(from, middle, to); }
};

flow_config config_of(const std::string& names) {
    std::string groups;
    for (char name : names)
        groups +=
            std::string(groups.empty() ? "" : ",") + "\"" + name + R"(": {"endpoint": "shm://"})";
    return parse_flow_config("{\"groups\": {" + groups + "}}").value();
}

std::string fault(graph& g, const flow_config* config = nullptr) {
    std::string sentence;
    status fits = g.core().check(config, sentence);
    EXPECT_EQ(fits.ok(), sentence.empty());
    return sentence;
}

TEST(graph, without_groups_runs_as_a_whole) {
    three_nodes three;
    EXPECT_EQ(fault(three.g), "");
}

TEST(graph, a_name_with_control_bytes_is_refused_and_shown_without_them) {
    graph g;
    g.pipeline(g.add<numbers>("from\x1b[31m\n"), g.add<swallow>("to\xc3\xa4"));
    EXPECT_EQ(fault(g),
              "the name of the node \"from\\x1b[31m\\x0a\" has control characters, expected "
              "printable text; example: \"split\"");
    EXPECT_EQ(g.dot().find('\x1b'), std::string::npos);
    EXPECT_NE(g.dot().find("to\xc3\xa4"), std::string::npos);
}

/// The error for an ordered farm whose emitter, workers and collector are in these groups; "R" has
/// three processes.
std::string fault_of_order(const std::string& emitter, const std::string& workers,
                           const std::string& collector) {
    graph g;
    auto from = g.add<numbers>("from");
    auto farm = g.add_ordered_farm<int, int>("work", 2, [](int n) { return n; });
    auto to = g.add<swallow>("to");
    g.pipeline(from, farm, to);
    g.group("A").add(from);
    g.group("B").add(to);
    g.group(emitter).add(farm.emitter);
    g.group(workers).add(farm.workers);
    g.group(collector).add(farm.collector);
    const bool replicated = (emitter + workers + collector).find('R') != std::string::npos;
    const flow_config config =
        parse_flow_config(std::string(R"({"groups": {"A": {"endpoint": "shm://"},
                                                     "B": {"endpoint": "shm://"})") +
                          (replicated ? R"(, "R": {"endpoint": "shm://", "replicas": 3}}})" : "}}"))
            .value();
    return fault(g, &config);
}

TEST(graph, an_ordered_farm_numbers_and_sorts_in_one_process) {
    for (const char* fine : {"AAA", "ABB", "ARB", "ARA", "RRR"})
        EXPECT_EQ(fault_of_order({fine[0]}, {fine[1]}, {fine[2]}), "") << fine;
    const std::string emitter =
        "\"work.emitter\" of an ordered farm is in group \"R\", which has 3 processes, expected "
        "one, because items are numbered there, or all nodes of the farm in that group; example: a "
        "group with \"replicas\" for its workers only";
    for (const char* wrong : {"RRB", "RAA", "RAR"})
        EXPECT_EQ(fault_of_order({wrong[0]}, {wrong[1]}, {wrong[2]}), emitter) << wrong;
    for (const char* wrong : {"AAR", "ARR"})
        EXPECT_EQ(fault_of_order({wrong[0]}, {wrong[1]}, {wrong[2]})
                      .rfind("\"work.collector\" of an ordered farm is in group \"R\", which has 3 "
                             "processes, expected one, because results are sorted there",
                             0),
                  0u)
            << wrong;
}

TEST(graph, a_choice_among_workers_does_not_fit_a_group_of_several_processes) {
    const auto key = [](int n) { return n; };
    for (
        const std::string config_text :
        {R"({"groups": {"A": {"endpoint": "shm://", "replicas": 2}, "B": {"endpoint": "shm://"}}})",
         R"({"groups": {"A": {"endpoint": "shm://"}, "B": {"endpoint": "shm://", "replicas": 2}}})"}) {
        graph g;
        auto from = g.add<numbers>("from");
        auto work = g.add_farm<int, int>("work", 2, [](int n) { return n; });
        auto keep = g.add<swallow>("keep");
        auto keep_too = g.add<swallow>("keep-too");
        g.pipeline(from, work, g.farm<int, void>({keep, keep_too}, by_key(key)));
        g.group("A").add(from, work, keep);
        g.group("B").add(keep_too);
        flow_config config = parse_flow_config(config_text).value();
        EXPECT_EQ(fault(g, &config),
                  config.groups[0].replicas() == 1
                      ? ""
                      : "\"work.0\" sends by key, by a function or to all, and also to \"keep\" in "
                        "its own group \"A\", which has 2 processes, each with its own \"keep\"; "
                        "expected one process, or another group for one of the two");
    }
}

TEST(graph, a_node_in_two_pools_does_not_fit) {
    three_nodes three;
    three.g.in_pool("io", three.middle);
    three.g.pin(1, three.middle);
    EXPECT_EQ(fault(three.g),
              "the node \"middle\" is in the pools \"io\" and \"cpu1\", expected one");
}

TEST(graph, combined_nodes_in_two_pools_do_not_fit) {
    graph g;
    auto from = g.add<numbers>("from");
    auto to = g.add<swallow>("to");
    g.combine(from, to);
    g.in_pool("io", to);
    EXPECT_EQ(fault(g),
              "the nodes \"from\" and \"to\" are combined, expected the same pool for both");
}

TEST(graph, every_node_in_one_group_fits_a_config_with_the_same_groups) {
    three_nodes three;
    three.g.group("A").add(three.from, three.to);
    three.g.group("B").add(three.middle);
    flow_config config = config_of("BA");
    EXPECT_EQ(fault(three.g, &config), "");
    EXPECT_EQ(fault(three.g), "");
}

TEST(graph, a_node_in_no_group_is_refused_by_its_name) {
    three_nodes three;
    three.g.group("A").add(three.from, three.to);
    const char* expected =
        "the node \"middle\" is in no group, expected one; example: graph.group(\"A\").add(middle)";
    flow_config config = config_of("A");
    EXPECT_EQ(fault(three.g, &config), expected);
    EXPECT_EQ(fault(three.g), expected);
}

TEST(graph, a_node_in_two_groups_is_refused_by_its_name) {
    three_nodes three;
    three.g.group("A").add(three.from, three.middle);
    three.g.group("B").add(three.middle, three.to);
    flow_config config = config_of("AB");
    EXPECT_EQ(fault(three.g, &config),
              "the node \"middle\" is in the groups \"A\" and \"B\", expected one");
}

TEST(graph, a_group_that_only_the_config_has_is_refused_by_its_name) {
    three_nodes three;
    three.g.group("A").add(three.from, three.middle, three.to);
    flow_config config = config_of("AB");
    EXPECT_EQ(fault(three.g, &config),
              "the config has a group \"B\" that the graph does not have, expected the graph's "
              "groups: A");
}

TEST(graph, a_group_that_only_the_graph_has_is_refused_by_its_name) {
    three_nodes three;
    three.g.group("A").add(three.from, three.middle);
    three.g.group("B").add(three.to);
    flow_config config = config_of("A");
    EXPECT_EQ(fault(three.g, &config),
              "the graph has a group \"B\" that the config does not have, expected one of the "
              "config's groups: A");
}

TEST(graph, a_group_without_nodes_is_refused_by_its_name) {
    three_nodes three;
    three.g.group("A").add(three.from, three.middle, three.to);
    three.g.group("B");
    EXPECT_EQ(fault(three.g),
              "the group \"B\" has no node, expected at least one; "
              "example: graph.group(\"B\").add(node)");
}

TEST(graph, a_pipeline_is_a_block_that_groups_and_pipelines_take) {
    graph g;
    auto both = g.pipeline(g.add<twice>("a"), g.add<twice>("b"));
    auto from = g.add<numbers>("from");
    auto to = g.add<swallow>("to");
    g.pipeline(from, both, to);
    g.group("A").add(from, to);
    g.group("B").add(both);
    EXPECT_EQ(fault(g), "");
    EXPECT_EQ(g.core().edges().size(), 3u);
}

TEST(graph, two_nodes_of_one_name_are_refused) {
    graph g;
    g.pipeline(g.add<numbers>("same"), g.add<swallow>("same"));
    EXPECT_EQ(fault(g), "two nodes are named \"same\", expected a unique name for each");
}

TEST(graph, a_node_without_a_name_is_refused) {
    graph g;
    g.pipeline(g.add<numbers>(""), g.add<swallow>("to"));
    EXPECT_EQ(fault(g), "a node has no name, expected one; example: \"split\"");
}

TEST(graph, a_stage_that_nothing_leads_to_is_refused) {
    graph g;
    g.pipeline(g.add<twice>("lost"), g.add<swallow>("to"));
    EXPECT_EQ(fault(g),
              "the node \"lost\" has no input, expected a pipeline that leads to it; example: "
              "graph.pipeline(source, lost)");
}

TEST(graph, a_stage_that_leads_nowhere_is_refused) {
    graph g;
    g.pipeline(g.add<numbers>("from"), g.add<twice>("lost"));
    EXPECT_EQ(fault(g),
              "the output of the node \"lost\" goes nowhere, expected a pipeline that leads on; "
              "example: graph.pipeline(lost, sink)");
}

TEST(graph, several_may_send_to_one_node) {
    graph g;
    auto to = g.add<swallow>("to");
    g.pipeline(g.add<numbers>("a"), to);
    g.pipeline(g.add<numbers>("b"), to);
    EXPECT_EQ(fault(g), "");
}

TEST(graph, a_node_that_was_joined_twice_is_refused) {
    graph g;
    auto from = g.add<numbers>("from");
    g.pipeline(from, g.add<swallow>("a"));
    g.pipeline(from, g.add<swallow>("b"));
    EXPECT_EQ(fault(g),
              "the node \"from\" already sends items to \"a\" and was also joined with \"b\", "
              "expected one of them, or both as one block; example: graph.farm({a, b})");
}

TEST(graph, a_circle_without_a_source_is_refused) {
    graph g;
    auto a = g.add<twice>("a");
    auto b = g.add<twice>("b");
    g.pipeline(a, b);
    g.pipeline(b, a);
    EXPECT_EQ(fault(g),
              "the node \"a\" is in a cycle or behind one, expected a pipeline that starts at a "
              "source, or feedback()");
}

TEST(graph, nodes_that_are_one_in_two_groups_are_refused) {
    graph g;
    auto a = g.add<twice>("a");
    auto b = g.add<twice>("b");
    auto from = g.add<numbers>("from");
    auto to = g.add<swallow>("to");
    g.pipeline(from, g.combine(a, b), to);
    g.group("A").add(from, a, to);
    g.group("B").add(b);
    EXPECT_EQ(fault(g), "the nodes \"a\" and \"b\" are combined, expected the same group for both");
}

TEST(graph, only_nodes_are_combined) {
    graph g;
    auto farm = g.farm<int, int>({g.add<twice>("a"), g.add<twice>("b")});
    g.pipeline(g.add<numbers>("from"), g.combine(g.add<twice>("c"), farm), g.add<swallow>("to"));
    EXPECT_EQ(
        fault(g),
        "combine() was given a block of several nodes, one of them \"a\", expected single nodes");
}

TEST(graph, more_items_on_demand_than_a_queue_can_have_are_refused) {
    for (const std::size_t items : {std::size_t(1) << 40, std::size_t(1) << 62, std::size_t(-1)}) {
        graph g;
        g.pipeline(g.add<numbers>("from"),
                   g.farm(std::vector{g.add_stage<int, int>("work", [](int n) { return n; })},
                          on_demand(items)),
                   g.add<swallow>("to"));
        EXPECT_EQ(fault(g), "the node \"work\" gets " + std::to_string(items) +
                                " items on demand, expected a number from 1 to 4294967296; "
                                "example: on_demand(2)");
    }
}

TEST(graph, a_farm_without_workers_is_refused) {
    graph g;
    g.pipeline(g.add<numbers>("from"), g.farm<int, int>({}), g.add<swallow>("to"));
    EXPECT_EQ(fault(g), "a farm or all_to_all was given no workers, expected at least one");
}

TEST(graph, without_nodes_is_refused) {
    graph g;
    EXPECT_EQ(fault(g), "the graph has no node, expected at least a source and a sink");
}

TEST(graph, blocks_of_another_graph_are_refused) {
    three_nodes mine, other;
    mine.g.group("A").add(other.from);
    EXPECT_EQ(fault(mine.g),
              "the group \"A\" was given a block of another graph, expected blocks of this one");
    graph third;
    third.pipeline(other.from, other.middle);
    EXPECT_EQ(fault(third),
              "a pipeline joins a block of another graph, expected blocks of this one");
}

TEST(graph, items_that_cannot_be_serialized_stay_within_a_group) {
    graph g;
    auto from = g.add_source<not_serializable>("from", [](outlet<not_serializable>&) {});
    auto to = g.add_sink<not_serializable>("to", [](const not_serializable&) {});
    g.pipeline(from, to);
    EXPECT_EQ(fault(g), "");
    g.group("A").add(from);
    g.group("B").add(to);
    flow_config config = config_of("AB");
    EXPECT_EQ(fault(g, &config)
                  .rfind("the items between \"from\" in group \"A\" and \"to\" in "
                         "group \"B\" cannot be sent to another process",
                         0),
              0u);
}

TEST(graph, built_alike_has_the_same_fingerprint) {
    three_nodes a, b, c;
    a.g.group("A").add(a.from);
    b.g.group("A").add(b.from);
    c.g.group("A").add(c.middle);
    EXPECT_EQ(a.g.core().fingerprint(), b.g.core().fingerprint());
    EXPECT_NE(a.g.core().fingerprint(), c.g.core().fingerprint());
}

/// A source, a farm of two in its own group, a loop of two combined nodes, a sink.
struct shown {
    graph g;
    shown() {
        auto from = g.add<numbers>("from");
        auto farm = g.farm<int, int>({g.add<twice>("a"), g.add<twice>("b")}, on_demand(3));
        auto c = g.add<twice>("say \"c\"");
        auto d = g.add<twice>("d");
        auto loop = g.feedback(g.combine(c, d), [](const int& n) { return n < 9; });
        auto to = g.add<swallow>("to");
        g.pipeline(from, farm, loop, to);
        g.group("A").add(from, loop, to);
        g.group("B").add(farm);
    }
};

TEST(graph, shows_itself_in_dot) {
    EXPECT_EQ(shown().g.dot(),
              R"dot(digraph flow {
  rankdir=LR;
  node [shape=box];
  subgraph cluster_0 {
    label="A";
    n0 [label="from"];
    n3 [label="say \"c\""];
    n4 [label="d"];
    n5 [label="to"];
  }
  subgraph cluster_1 {
    label="B";
    n1 [label="a"];
    n2 [label="b"];
  }
  n3 -> n4 [arrowhead=none, penwidth=3];
  n4 -> n3 [style=dashed, constraint=false];
  n0 -> n1 [label="on demand (3)", color=blue];
  n0 -> n2 [label="on demand (3)", color=blue];
  n1 -> n3 [color=blue];
  n2 -> n3 [color=blue];
  n4 -> n5;
}
)dot");
}

TEST(graph, shows_itself_as_json) {
    const std::string text = shown().g.json();
    EXPECT_NE(text.find(R"("name": "say \"c\"")"), std::string::npos) << text;
    EXPECT_NE(text.find(R"x("routing": "on demand (3)")x"), std::string::npos) << text;
    EXPECT_NE(text.find(R"("back": true)"), std::string::npos) << text;
    EXPECT_NE(text.find(R"("combined": true)"), std::string::npos) << text;
}

}  // namespace
}  // namespace amalgam
