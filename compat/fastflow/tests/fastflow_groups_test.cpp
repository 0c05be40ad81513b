#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/child_process.hpp"
#include "fastflow_free_port.hpp"
#include "few_threads.hpp"  // also says whether the program's limit works
#include "temp_folder.hpp"

// Runs fastflow_groups_program, each group a process.
namespace {

using amalgam::conformance::child_process;
using ff::testing_groups::free_port;

struct ended {
    int code;
    std::string output;
};

class fastflow_groups : public testing::TestWithParam<const char*> {
protected:
    /// `options`: of every group, as JSON; `whole`: of the file.
    std::string config(const std::string& options = "", const std::string& whole = "") {
        std::string groups;
        for (const std::string& name : names)
            groups += (groups.empty() ? "" : ", ") + ("{\"name\": \"" + name) +
                      "\", \"endpoint\": \"localhost:" + free_port() + "\"" +
                      (options.empty() ? "" : ", " + options) + "}";
        return folder.with("groups.json", "{\"protocol\": \"" + std::string(GetParam()) + "\", " +
                                              whole + "\"groups\": [" + groups + "]}");
    }
    std::vector<std::string> command(const std::string& config, const std::string& group,
                                     std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), FASTFLOW_GROUPS_PROGRAM);
        arguments.push_back("--DFF_Config=" + config);
        arguments.push_back("--DFF_GName");
        arguments.push_back(group);
        return arguments;
    }
    std::map<std::string, ended> run(const std::string& config,
                                     const std::vector<std::string>& arguments) {
        std::vector<std::pair<std::string, child_process>> all;
        for (const std::string& name : names)
            all.emplace_back(name, child_process::run(command(config, name, arguments)));
        std::map<std::string, ended> result;
        for (auto& [name, process] : all) {
            std::string output = process.output();
            result[name] = {process.join(), std::move(output)};
        }
        return result;
    }
    /// All groups end well, and `group` found what it expected.
    void expect_right(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& groups_that_check,
                      const std::string& options = "") {
        auto all = run(config(options), arguments);
        for (const auto& [name, one] : all) {
            EXPECT_EQ(one.code, 0) << name << ": " << one.output;
            EXPECT_EQ(one.output.find("wrong"), std::string::npos) << name << ": " << one.output;
        }
        for (const std::string& name : groups_that_check)
            EXPECT_NE(all[name].output.find("[" + name + "] right\n"), std::string::npos)
                << name << ": " << all[name].output;
    }

    std::vector<std::string> names{"G1", "G2", "G3"};
    amalgam::temp_folder folder;
};
INSTANTIATE_TEST_SUITE_P(tcp, fastflow_groups, testing::Values("TCP"));
INSTANTIATE_TEST_SUITE_P(shm, fastflow_groups, testing::Values("shm"));

TEST_P(fastflow_groups, a_pipeline_cut_into_three_keeps_every_item_in_order) {
    expect_right({"stages"}, {"G3"});
}
TEST_P(fastflow_groups, batches_and_windows_of_any_size_lose_nothing) {
    expect_right({"stages"}, {"G3"}, R"("batchSize": 100, "batchByteSize": "2k")");
    expect_right({"stages"}, {"G3"}, R"("messageOTF": 1)");
    expect_right({"stages"}, {"G3"}, R"("batchSize": 7, "messageOTF": 1, "threadMapping": "0,1")");
}
TEST_P(fastflow_groups, emitter_workers_and_collector_may_be_in_groups_of_their_own) {
    expect_right({"farm"}, {"G3"});
}
TEST_P(fastflow_groups, an_ordered_farm_keeps_the_order_of_workers_elsewhere) {
    expect_right({"ordered_farm"}, {"G3"});
}
TEST_P(fastflow_groups, the_sets_of_an_all_to_all_may_be_apart) {
    expect_right({"left_and_right"}, {"G2", "G3"});
    expect_right({"left_and_right"}, {"G2", "G3"}, R"("internalMessageOTF": 1)");
}
TEST_P(fastflow_groups, a_group_may_have_parts_of_both_sets) {
    expect_right({"mixed"}, {"G1", "G2", "G3"});
}
TEST_P(fastflow_groups, feedback_goes_from_one_group_to_another) {
    expect_right({"loop"}, {"G2"});
    expect_right({"loop"}, {"G2"}, R"("batchSize": 50)");
}
TEST_P(fastflow_groups, plain_nodes_get_the_channels_they_need) {
    expect_right({"sets"}, {"G3"});
}
TEST_P(fastflow_groups, a_block_inside_a_node_runs_in_its_process) {
    expect_right({"inner_block"}, {"G3"});
}
TEST_P(fastflow_groups, members_turn_items_into_bytes_with_and_without_copies) {
    names = {"G1", "G2"};
    expect_right({"not_copied"}, {"G1", "G2"});
    expect_right({"copied"}, {"G1", "G2"});
}
TEST_P(fastflow_groups, functions_of_nodes_do_so_for_types_that_know_nothing_of_it) {
    names = {"G1", "G2"};
    expect_right({"functions"}, {"G2"});
    expect_right({"older_functions"}, {"G2"});
}
TEST_P(fastflow_groups, functions_beside_an_item_turn_it_into_bytes) {
    names = {"G1", "G2"};
    for (const char* which : {"free_functions", "free_functions_oldest", "free_functions_copying",
                              "free_function_beside_a_member"})
        expect_right({which}, {"G1", "G2"});
}
TEST_P(fastflow_groups, serialize_takes_the_standard_library_s_containers) {
    names = {"G1", "G2"};
    expect_right({"containers"}, {"G2"});
}
TEST_P(fastflow_groups, items_travel_by_cereal_if_the_program_includes_it) {
#if !__has_include(<cereal/archives/portable_binary.hpp>)
    GTEST_SKIP() << "needs cereal, as in Debian's libcereal-dev";
#endif
    names = {"G1", "G2"};
    expect_right({"by_cereal"}, {"G1", "G2"});
    names = {"G1"};
    expect_right({"as_cereal"}, {"G1"});
}
TEST_P(fastflow_groups, an_item_leaves_a_batch_that_is_not_full) {
    names = {"G1", "G2"};
    expect_right({"flush"}, {"G1"});
}
TEST_P(fastflow_groups, items_of_many_megabytes_arrive) {
    names = {"G1", "G2"};
    expect_right({"large"}, {"G2"});
}
TEST_P(fastflow_groups, a_node_that_ends_early_or_throws_ends_its_stream_and_nobody_waits) {
    expect_right({"trouble", "ends"}, {"G3"});
    auto all = run(config(), {"trouble", "throws"});
    EXPECT_EQ(all["G1"].code, 0) << all["G1"].output;
    EXPECT_EQ(all["G2"].code, 1) << all["G2"].output;
    EXPECT_NE(all["G2"].output.find("the thousandth"), std::string::npos) << all["G2"].output;
    EXPECT_EQ(all["G3"].code, 0) << all["G3"].output;
}
TEST_P(fastflow_groups, a_group_that_dies_is_named_with_its_address_and_ends_the_others) {
    auto all = run(config(), {"trouble", "dies"});
    EXPECT_EQ(all["G2"].code, 7);
    for (const char* name : {"G1", "G3"}) {
        EXPECT_EQ(all[name].code, 1) << all[name].output;
        EXPECT_NE(all[name].output.find("group G2 at "), std::string::npos) << all[name].output;
        EXPECT_NE(all[name].output.find("is lost before the end"), std::string::npos)
            << all[name].output;
    }
}
// Of a loop: the nodes that have threads wait for those that have none.
TEST_P(fastflow_groups, a_group_that_lacks_threads_for_its_nodes_is_named_and_ends_the_others) {
    names = {"G1", "G2"};
    int refused = 0;
    for (int spare = 0, code = 1; code != 0; ++spare) {
        // G1 cannot send all of its stream before G2 has failed.
        const std::string file = config(R"("messageOTF": 1)");
        const std::vector<std::string> arguments{"few_threads", std::to_string(spare)};
        auto other = child_process::run(command(file, "G1", arguments));
        auto lacking = child_process::run(command(file, "G2", arguments));
        const std::string said = lacking.output();
        code = lacking.join();
        const std::string sentence = "group G2 cannot start all threads of its nodes";
        if (code != 0 && said.find(sentence) == std::string::npos) {
            EXPECT_NE(said.find("group G2"), std::string::npos) << said;
            other.kill();  // It waits for a group that never opened its port.
            continue;
        }
        const std::string heard = other.output();
        EXPECT_EQ(other.join(), code) << heard;
        if (code == 0) break;
        ++refused;
        EXPECT_NE(heard.find(sentence), std::string::npos) << heard;
    }
#if !defined(AMALGAM_ASAN) && !defined(AMALGAM_TSAN)
    EXPECT_EQ(refused, 2);  // The first or the second of its nodes.
#endif
}
TEST_P(fastflow_groups, an_item_that_cannot_be_read_ends_both_with_the_reason) {
    names = {"G1", "G2"};
    auto all = run(config(), {"not_readable"});
    for (const std::string& name : names) {
        EXPECT_EQ(all[name].code, 1) << all[name].output;
        EXPECT_NE(all[name].output.find("not this one"), std::string::npos) << all[name].output;
    }
}
TEST_P(fastflow_groups, nodes_without_types_are_refused_where_items_leave) {
    names = {"G1", "G2"};
    auto all = run(config(), {"untyped"});
    EXPECT_EQ(all["G1"].code, 1);
    EXPECT_NE(all["G1"].output.find("serialize(Archive&)"), std::string::npos) << all["G1"].output;
}
TEST_P(fastflow_groups, faulty_groups_are_refused_in_one_sentence) {
    const std::map<std::string, std::string> sentences{
        {"twice", "two groups named G1"},
        {"both", "is in group G1 already"},
        {"none", "is in no group"},
        {"unknown", "elsewhere is not in the configuration file"}};
    names = {"G1"};
    for (const auto& [which, sentence] : sentences) {
        auto all = run(config(), {"faulty", which});
        EXPECT_EQ(all["G1"].code, 1) << which;
        EXPECT_NE(all["G1"].output.find(sentence), std::string::npos) << all["G1"].output;
    }
}
TEST_P(fastflow_groups, who_does_not_come_is_named) {
    const std::string file = config("", "\"joinSeconds\": 0.2, ");
    const std::map<std::string, std::string> sentences{{"G1", "group G2 at "},
                                                       {"G3", "no word from group G2"}};
    for (const auto& [name, sentence] : sentences) {
        auto process = child_process::run(command(file, name, {"stages"}));
        const std::string output = process.output();
        EXPECT_EQ(process.join(), 1);
        EXPECT_NE(output.find(sentence), std::string::npos) << output;
    }
}
TEST_P(fastflow_groups, processes_of_different_programs_refuse_each_other) {
    const std::string file = config();
    auto there = child_process::run(command(file, "G3", {"another", "there"}));
    auto middle = child_process::run(command(file, "G2", {"another", "there"}));
    auto here = child_process::run(command(file, "G1", {"another", "here"}));
    const std::string output = here.output();
    EXPECT_EQ(here.join(), 1);
    EXPECT_NE(output.find("was built from another program"), std::string::npos) << output;
    middle.kill();
    there.kill();
}
TEST_P(fastflow_groups, amalgam_run_starts_all_groups_of_fastflow_s_file) {
    const std::string file = config(R"("preCmd": "export FASTFLOW_PRE=1;")");
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {FASTFLOW_AMALGAM, "run", "-c", file, "--", FASTFLOW_GROUPS_PROGRAM, "stages"},
             {FASTFLOW_DFF_RUN, "-V", "-t", "100", "-f", file, FASTFLOW_GROUPS_PROGRAM,
              "stages"}}) {
        auto launcher = child_process::run(command);
        const std::string output = launcher.output();
        EXPECT_EQ(launcher.join(), 0) << output;
        EXPECT_EQ(output, "[G3] right\n");
    }
    auto shown =
        child_process::run({FASTFLOW_DFF_RUN, "-n", "-f", file, FASTFLOW_GROUPS_PROGRAM, "stages"});
    EXPECT_NE(shown.output().find("--DFF_GName=G2"), std::string::npos);
    auto failing = child_process::run(
        {FASTFLOW_AMALGAM, "run", "-c", file, "--", FASTFLOW_GROUPS_PROGRAM, "trouble", "dies"});
    const std::string output = failing.output();
    EXPECT_NE(failing.join(), 0) << output;
}

TEST(fastflow_groups_start, what_is_missing_or_wrong_is_said_in_one_sentence) {
    const amalgam::temp_folder folder;
    const std::string good =
        folder.with("good.json", R"({"groups": [{"name": "G1", "endpoint": "localhost:1"}]})");
    const std::string list = folder.with("list.json", R"({"groups": {}})");
    const std::string text = folder.with("text.json", "groups");
    const std::string port =
        folder.with("port.json", R"({"groups": [{"name": "G1", "endpoint": "here"}]})");
    const std::string size = folder.with(
        "size.json", R"({"groups": [{"name": "G", "endpoint": "a:1", "batchByteSize": "x"}]})");
    const std::string many = folder.with(
        "many.json",
        R"({"groups": [{"name": "G", "endpoint": "a:1", "batchByteSize": "17179869184g"}]})");
    const std::string open = folder.with(
        "open.json", R"({"insecure": 1, "groups": [{"name": "G", "endpoint": "a:1"}]})");
    const std::string number =
        folder.with("number.json", R"({"groups": [{"name": 5, "endpoint": "a:1"}]})");
    const std::string deep =
        folder.with("deep.json", R"({"groups": [{"name": )" + std::string(200000, '[') +
                                     std::string(200000, ']') + R"(, "endpoint": "a:1"}]})");
    const std::string twice = folder.with(
        "twice.json", R"({"groups": [{"name": "G1", "endpoint": "a:1", "endpoint": "b:1"}]})");
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
        {{"stages"}, "--DFF_Config=groups.json"},
        {{"stages", "--DFF_Config", twice, "--DFF_GName=G1"}, "has the key \"endpoint\" twice"},
        {{"stages", "--DFF_Config", deep, "--DFF_GName=G1"}, "more than 100 lists"},
        {{"stages", "--DFF_Config=" + good}, "--DFF_GName=G1"},
        {{"stages", "--DFF_Config=" + good, "--DFF_GName=G9"}, "expected one of G1"},
        {{"stages", "--DFF_Config=/nowhere", "--DFF_GName=G1"}, "cannot be opened"},
        {{"stages", "--DFF_Config", list, "--DFF_GName=G1"}, "no list of groups"},
        {{"stages", "--DFF_Config", text, "--DFF_GName=G1"}, "is no JSON"},
        {{"stages", "--DFF_Config", port, "--DFF_GName=G1"}, "expected a host and a port"},
        {{"stages", "--DFF_Config", size, "--DFF_GName=G1"}, "batchByteSize"},
        {{"stages", "--DFF_Config", many, "--DFF_GName=G1"}, "batchByteSize"},
        {{"stages", "--DFF_Config", open, "--DFF_GName=G1"}, "insecure is 1, expected true"},
        {{"stages", "--DFF_Config", number, "--DFF_GName=G1"}, "name is 5, expected text"}};
    for (const auto& [arguments, sentence] : cases) {
        std::vector<std::string> command = arguments;
        command.insert(command.begin(), FASTFLOW_GROUPS_PROGRAM);
        auto process = child_process::run(command);
        const std::string output = process.output();
        EXPECT_EQ(process.join(), 3) << output;
        EXPECT_NE(output.find(sentence), std::string::npos) << output;
    }
}

TEST(fastflow_groups_start, groups_that_other_hosts_can_reach_must_say_that_this_is_meant) {
    const amalgam::temp_folder folder;
    // An address that no host has: what is meant gets further, and then fails.
    const std::string groups = R"("groups": [{"name": "G1", "endpoint": "192.0.2.77:1"},
                                             {"name": "G2", "endpoint": "192.0.2.77:2"},
                                             {"name": "G3", "endpoint": "192.0.2.77:3"}]})";
    const auto said = [&](const std::string& whole) {
        auto process = child_process::run(
            {FASTFLOW_GROUPS_PROGRAM, "stages",
             "--DFF_Config=" + folder.with("groups.json", "{" + whole + groups), "--DFF_GName=G3"});
        std::string output = process.output();
        EXPECT_NE(process.join(), 0);
        return output;
    };
    const std::string refused = said("");
    EXPECT_NE(refused.find("other hosts can reach this port"), std::string::npos) << refused;
    const std::string meant = said(R"("insecure": true, )");
    EXPECT_NE(meant.find("192.0.2.77 is not an address of this host"), std::string::npos) << meant;
}

TEST(fastflow_groups_start, a_dry_run_writes_which_group_has_which_node) {
    const amalgam::temp_folder folder;
    auto process = child_process::run(
        {FASTFLOW_GROUPS_PROGRAM, "inner_block", "--DFF_dryrun=" + folder.with("plan.json")});
    const std::string output = process.output();
    EXPECT_EQ(process.join(), 0) << output;
    std::stringstream plan;
    plan << std::ifstream(folder.with("plan.json")).rdbuf();
    EXPECT_NE(plan.str().find(R"("name": "G1", "endpoint": "node1:8000")"), std::string::npos)
        << plan.str();
}

}  // namespace
