#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/flow/config.hpp>

#include "temp_folder.hpp"

namespace amalgam {
namespace {

flow_config read(const std::string& json) {
    return parse_flow_config(json, "c.json").value();
}

std::string sentence_for(const std::string& json) {
    auto config = parse_flow_config(json, "c.json");
    EXPECT_FALSE(config.ok()) << json;
    EXPECT_EQ(config.code().code, errc::invalid);
    return config.sentence();
}

TEST(flow_config, keeps_groups_in_the_order_of_the_file) {
    flow_config config = read(R"({"groups": {"Z": {"endpoint": "shm://z"},
                                             "A": {"endpoint": "tcp://127.0.0.1:0"}}})");
    ASSERT_EQ(config.groups.size(), 2u);
    EXPECT_EQ(config.groups[0].name, "Z");
    EXPECT_EQ(config.groups[1].name, "A");
    EXPECT_EQ(config.groups[1].endpoints, std::vector<std::string>{"tcp://127.0.0.1:0"});
    EXPECT_EQ(config.find("A"), &config.groups[1]);
    EXPECT_EQ(config.find("a"), nullptr);
}

TEST(flow_config, one_endpoint_serves_replicas_that_choose_their_own_address) {
    flow_config config = read(
        R"({"groups": {"G": {"endpoint": "tcp://127.0.0.1:0", "replicas": 3, "threads": 2,
                             "env": {"A": "1", "B": ""}}}})");
    EXPECT_EQ(config.groups[0].replicas(), 3u);
    EXPECT_EQ(config.groups[0].threads, 2u);
    EXPECT_EQ(config.groups[0].env.size(), 2u);
    EXPECT_EQ(config.groups[0].env[1].first, "B");
}

TEST(flow_config, a_list_of_endpoints_makes_as_many_replicas) {
    flow_config config = read(R"({"groups": {"G": {"endpoint": ["shm://a", "shm://b"]}}})");
    EXPECT_EQ(config.groups[0].endpoints, (std::vector<std::string>{"shm://a", "shm://b"}));
    EXPECT_EQ(process_label(config.groups[0], 1), "G.1");
}

TEST(flow_config, a_group_of_one_process_is_labeled_by_its_name) {
    EXPECT_EQ(process_label(read(R"({"groups": {"G": {"endpoint": "shm://"}}})").groups[0], 0),
              "G");
}

TEST(flow_config, a_file_of_fastflow_gives_each_group_its_options) {
    flow_config config = read(
        R"({"protocol": "TCP", "groups": [
            {"name": "G1", "endpoint": "localhost:8004", "batchSize": 8},
            {"endpoint": "192.0.2.77:8005", "name": "G2", "preCmd": "taskset -c 0"}]})");
    EXPECT_TRUE(config.stand_alone);
    ASSERT_EQ(config.groups.size(), 2u);
    EXPECT_EQ(config.groups[0].host(0), "");
    EXPECT_EQ(config.groups[1].host(0), "192.0.2.77");
    EXPECT_EQ(config.groups[1].pre_command, "taskset -c 0");
    ASSERT_EQ(config.groups[1].arguments.size(), 2u);
    EXPECT_EQ(config.groups[1].arguments[0].rfind("--DFF_Config=/", 0), 0u);
    EXPECT_EQ(config.groups[1].arguments[1], "--DFF_GName=G2");
    EXPECT_EQ(read(to_json(config)), config);
}

TEST(flow_config, any_loopback_address_in_a_file_of_fastflow_is_this_host) {
    const flow_config config = read(
        R"({"groups": [{"name": "G1", "endpoint": "127.0.0.2:8004"},
                       {"name": "G2", "endpoint": "127.1.2.3:8005"}]})");
    EXPECT_EQ(config.groups.at(0).host(0), "");
    EXPECT_EQ(config.groups.at(1).host(0), "");
}

TEST(flow_config, a_faulty_file_of_fastflow_gets_one_sentence) {
    EXPECT_NE(sentence_for(R"({"groups": []})").find("expected a list of groups"),
              std::string::npos);
    EXPECT_NE(sentence_for(R"({"groups": [{"endpoint": "localhost:8004"}]})").find("a name"),
              std::string::npos);
    EXPECT_NE(sentence_for(R"({"groups": [{"name": "A"}, {"name": "A"}]})")
                  .find("which another group has"),
              std::string::npos);
}

TEST(flow_config, hosts_are_one_for_all_replicas_or_one_for_each) {
    flow_config config = read(
        R"({"groups": {"G": {"endpoint": "tcp://eth0:0", "replicas": 2, "host": "me@node7"},
                       "H": {"endpoint": "tcp://eth0:0", "replicas": 2, "host": ["", "node8"]},
                       "I": {"endpoint": "shm://"}}})");
    EXPECT_EQ(config.groups[0].host(1), "me@node7");
    EXPECT_EQ(config.groups[1].host(0), "");
    EXPECT_EQ(config.groups[1].host(1), "node8");
    EXPECT_EQ(config.groups[2].host(0), "");
    EXPECT_EQ(read(to_json(config)), config);
}

TEST(flow_config, two_hosts_may_have_the_same_fixed_address) {
    EXPECT_EQ(read(R"({"groups": {"G": {"endpoint": "tcp://eth0:7000", "host": "node7"},
                                  "H": {"endpoint": "tcp://eth0:7000", "host": "node8"}}})")
                  .groups.size(),
              2u);
}

TEST(flow_config, what_it_writes_reads_back_the_same) {
    flow_config config =
        read(R"({"groups": {"G": {"endpoint": ["shm://a", "tcp://127.0.0.1:9"], "threads": 1},
                            "H": {"endpoint": "shm://", "replicas": 2, "env": {"X": "ü\n\""}}}})");
    EXPECT_EQ(read(to_json(config)), config);
}

TEST(flow_config, fixed_addresses_are_those_others_can_know) {
    EXPECT_TRUE(has_fixed_address("tcp://127.0.0.1:7000"));
    EXPECT_TRUE(has_fixed_address("shm://name"));
    EXPECT_TRUE(has_fixed_address("loop://name"));
    EXPECT_FALSE(has_fixed_address("tcp://127.0.0.1:0"));
    EXPECT_FALSE(has_fixed_address("tcp://127.0.0.1"));
    EXPECT_FALSE(has_fixed_address("shm://"));
    EXPECT_TRUE(has_fixed_address("ucx+tcp://host:7000"));
    EXPECT_TRUE(has_fixed_address("no address")) << "it is refused where it is used";
    EXPECT_FALSE(has_fixed_address("ucx+tcp://host:0"));
}

struct wrong_config {
    const char* json;
    const char* expected;  ///< The sentence after "c.json: ".
};

class wrong_configs : public testing::TestWithParam<wrong_config> {};

TEST_P(wrong_configs, get_one_sentence_that_names_the_place) {
    EXPECT_EQ(sentence_for(GetParam().json), std::string("c.json: ") + GetParam().expected);
}

constexpr wrong_config wrong[] = {
    {R"({"groups": {"G": {"endpoint": "shm://", "host": 7}}})",
     R"(groups.G.host is 7, expected a host that ssh knows, or a list of them; example: "node7")"},
    {R"({"groups": {"G": {"endpoint": "shm://", "host": "-oProxyCommand=x"}}})",
     R"(groups.G.host is "-oProxyCommand=x", expected a host that ssh knows; example: "me@node7")"},
    {R"({"groups": {"G": {"endpoint": "shm://", "replicas": 2, "host": ["a"]}}})",
     "groups.G.host lists 1 hosts, expected 2: one for each replica"},
    {"{\n\"groups\": ,", R"(line 2 is not JSON, expected an object; example: {"groups": )"
                         R"({"G1": {"endpoint": "tcp://127.0.0.1:0"}}})"},
    {"[1]", R"(the config is [1], expected an object; example: {"groups": )"
            R"({"G1": {"endpoint": "tcp://127.0.0.1:0"}}})"},
    {"{}", R"(groups is missing, expected an object; example: {"groups": )"
           R"({"G1": {"endpoint": "tcp://127.0.0.1:0"}}})"},
    {R"({"groups": {}})", R"(groups is {}, expected an object with at least one group; )"
                          R"(example: {"G1": {"endpoint": "shm://g1"}})"},
    {R"({"group": {}})", "group is not known, expected one of: groups, standAlone"},
    {R"({"groups": {"G1": 7}})",
     R"(groups.G1 is 7, expected an object; example: {"endpoint": "shm://g1"})"},
    {R"({"groups": {"G1": {}}})",
     R"(groups.G1.endpoint is missing, expected a URI; example: "tcp://127.0.0.1:0")"},
    {R"({"groups": {"G1": {"endpoint": 7}}})",
     R"(groups.G1.endpoint is 7, expected a URI; example: "tcp://127.0.0.1:0")"},
    {R"({"groups": {"G1": {"endpoint": []}}})",
     R"(groups.G1.endpoint is [], expected a URI, or a list of them; example: )"
     R"(["shm://g2a", "shm://g2b"])"},
    {R"({"groups": {"G1": {"endpoint": "tcp://"}}})",
     R"(groups.G1.endpoint is "tcp://", which does not listen, expected an address; )"
     R"(example: "tcp://127.0.0.1:0")"},
    {R"({"groups": {"G1": {"endpoint": "shm://a", "thread": 1}}})",
     "groups.G1.thread is not known, expected one of: endpoint, replicas, threads, env, host, "
     "arguments, preCmd"},
    {R"({"groups": 1e999})", R"(a number is too large, expected an object; example: )"
                             R"({"groups": {"G1": {"endpoint": "tcp://127.0.0.1:0"}}})"},
    {R"({"groups": {"G1": {"endpoint": "shm://a", "threads": 0}}})",
     "groups.G1.threads is 0, expected a number from 1 to 1024; example: 2"},
    {R"({"groups": {"G1": {"endpoint": "shm://", "replicas": "2"}}})",
     R"(groups.G1.replicas is "2", expected a number from 1 to 1024; example: 2)"},
    {R"({"groups": {"G1": {"endpoint": "shm://a", "replicas": 2}}})",
     R"(groups.G1.endpoint is "shm://a" for 2 replicas, expected a list of 2, or one from )"
     R"(which each gets its own address; example: "tcp://127.0.0.1:0")"},
    {R"({"groups": {"G1": {"endpoint": ["shm://a"], "replicas": 2}}})",
     "groups.G1.replicas is 2, expected 1: as many as it has endpoints"},
    {R"({"groups": {"G1": {"endpoint": "shm://a", "env": {"A": 1}}}})",
     R"(groups.G1.env.A is 1, expected a string; example: "info")"},
    {R"({"groups": {"G1": {"endpoint": "shm://a", "env": {"A=B": "1"}}}})",
     "groups.G1.env has a variable named \"A=B\", expected a name without ="},
    {R"({"groups": {"G 1": {"endpoint": "shm://a"}}})",
     R"(groups has a group named "G 1", expected a name without spaces, dots, commas, quotes, )"
     R"(equal signs and control characters; example: G1)"},
    {R"({"groups": {"G\u001b[31m": {"endpoint": "shm://a"}}})",
     R"(groups has a group named "G\x1b[31m", expected a name without spaces, dots, commas, )"
     R"(quotes, equal signs and control characters; example: G1)"},
    {R"({"groups": {"G1": {"endpoint": "shm://a"}, "G1": {"endpoint": "shm://b"}}})",
     R"(the key "G1" appears twice in one object, expected once)"},
    {R"({"groups": {"G1": {"endpoint": "shm://a"}, "G2": {"endpoint": "na+sm://a"}}})",
     R"(groups.G2.endpoint is "na+sm://a", which G1 already uses, expected a unique address)"},
};
INSTANTIATE_TEST_SUITE_P(flow_config, wrong_configs, testing::ValuesIn(wrong));

TEST(flow_config, a_wrong_uri_gets_the_parsers_own_sentence) {
    EXPECT_EQ(sentence_for(R"({"groups": {"G1": {"endpoint": "tcp://h:99999"}}})"),
              "c.json: groups.G1.endpoint: " + parse_uri("tcp://h:99999").sentence());
}

TEST(flow_config, a_file_that_is_not_there_is_named) {
    auto config = load_flow_config("no/such/file.json");
    EXPECT_EQ(config.code().code, errc::not_found);
    EXPECT_NE(config.sentence().find("\"no/such/file.json\" cannot be read"), std::string::npos);
}

TEST(flow_config, a_folder_and_a_file_without_end_are_refused_by_name) {
    const auto folder = load_flow_config(testing::TempDir());
    EXPECT_EQ(folder.code().code, errc::not_found);
    EXPECT_TRUE(folder.sentence().starts_with("the config \"" + testing::TempDir() +
                                              "\" cannot be read (Is a directory), expected"))
        << folder.sentence();
    const auto endless = load_flow_config("/dev/zero");
    EXPECT_EQ(endless.code().code, errc::invalid);
    EXPECT_TRUE(
        endless.sentence().starts_with("the config \"/dev/zero\" is longer than 16 MiB, expected"))
        << endless.sentence();
}

TEST(flow_config, a_sentence_about_a_file_begins_with_its_name) {
    const temp_folder own;
    const std::string path = own.with("c.json", "[]");
    EXPECT_EQ(load_flow_config(path).sentence().rfind(path + ": the config is []", 0), 0u);
}

}  // namespace
}  // namespace amalgam
