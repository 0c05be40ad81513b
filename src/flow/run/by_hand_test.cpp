// A run whose processes are started individually, without the launcher.
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "flow/run/reports_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using conformance::child_process;

class by_hand : public testing::Test {
protected:
    void SetUp() override {
        // The name of a shared memory endpoint has at most 64 characters.
        write_config("shm://hand" + std::to_string(::getpid()) + "-");
    }

    void write_config(const std::string& prefix) {
        std::ofstream(config_) << R"({"groups": {"G1": {"endpoint": ")" << prefix
                               << R"(1"}, "G2": )"
                               << R"({"endpoint": ")" << prefix << R"(2"}, "G3": {"endpoint": ")"
                               << prefix << R"(3"}}})";
    }
    child_process start(const std::string& group, const std::string& mode,
                        const std::string& fifo = "") {
        return child_process::run({"env", "AMALGAM_CONFIG=" + config_, "AMALGAM_GROUP=" + group,
                                   FLOW_TEST_PROGRAM, mode, fifo});
    }
    std::string refusal(const std::vector<std::string>& variables) {
        std::vector<std::string> argv{"env"};
        argv.insert(argv.end(), variables.begin(), variables.end());
        argv.insert(argv.end(), {FLOW_TEST_PROGRAM, "count"});
        child_process refused = child_process::run(argv);
        std::string output = refused.output();
        EXPECT_EQ(refused.join(), 1);
        return output;
    }

    const temp_folder own_;
    const std::string config_ = own_.with("c.json");
};

TEST_F(by_hand, groups_find_each_other_in_whatever_order_they_start) {
    child_process last = start("G3", "count");
    child_process first = start("G1", "count");
    child_process middle = start("G2", "count");
    EXPECT_EQ(last.output(), "got 1000\n");
    EXPECT_EQ(last.join(), 0);
    EXPECT_EQ(first.output() + middle.output(), "");
    EXPECT_EQ(first.join() + middle.join(), 0);
}

TEST_F(by_hand, a_group_that_is_killed_ends_the_others_with_its_name) {
    detail::test_reports reports(config_ + ".fifo");
    child_process last = start("G3", "flowing", reports.path());
    child_process first = start("G1", "flowing", reports.path());
    child_process middle = start("G2", "flowing", reports.path());
    reports.wait_for(1);  // From the sink, when items have arrived.
    middle.kill();
    EXPECT_NE(first.join(), 0);
    EXPECT_NE(last.join(), 0);
    for (child_process* one : {&first, &last})
        EXPECT_EQ(one->output().rfind("amalgam: lost contact with group G2 (", 0), 0u);
}

TEST_F(by_hand, a_node_that_throws_ends_every_group_with_its_words) {
    child_process last = start("G3", "throw");
    child_process first = start("G1", "throw");
    child_process middle = start("G2", "throw");
    for (child_process* one : {&first, &middle, &last}) {
        std::string output = one->output();
        EXPECT_NE(output.find("the node \"middle\" failed: no more than 100"), std::string::npos)
            << output;
        EXPECT_EQ(one->join(), 1);
    }
}

TEST_F(by_hand, a_program_that_stops_its_run_ends_it_in_every_group) {
    child_process last = start("G3", "halted");
    child_process first = start("G1", "halted");
    child_process middle = start("G2", "halted");
    EXPECT_EQ(first.output(), "canceled\n");
    EXPECT_EQ(first.join(), 1);
    for (child_process* one : {&middle, &last}) {
        const std::string output = one->output();
        EXPECT_NE(output.find("the run was stopped by its own program"), std::string::npos)
            << output;
        EXPECT_EQ(one->join(), 1);
    }
}

TEST_F(by_hand, a_node_that_computes_for_longer_than_the_silence_limit_is_not_lost) {
    child_process last = start("G3", "busy");
    child_process first = start("G1", "busy");
    child_process middle = start("G2", "busy");
    EXPECT_EQ(last.output(), "got 150\n");
    EXPECT_EQ(first.output() + middle.output(), "");
    EXPECT_EQ(first.join() + middle.join() + last.join(), 0);
}

TEST_F(by_hand, a_group_that_is_not_in_the_config_is_refused) {
    EXPECT_EQ(
        refusal({"AMALGAM_CONFIG=" + config_, "AMALGAM_GROUP=G9"}),
        "amalgam: AMALGAM_GROUP is \"G9\", expected a group of " + config_ + "; example: G1\n");
}

TEST_F(by_hand, a_config_without_a_group_is_refused) {
    EXPECT_EQ(refusal({"AMALGAM_CONFIG=" + config_}),
              "amalgam: AMALGAM_CONFIG is set without AMALGAM_GROUP, expected the group of this "
              "process; example: AMALGAM_GROUP=G1\n");
}

TEST_F(by_hand, a_group_without_a_config_is_refused) {
    EXPECT_EQ(refusal({"AMALGAM_GROUP=G1"}),
              "amalgam: AMALGAM_GROUP is \"G1\" without AMALGAM_CONFIG, expected both, or a start "
              "by amalgam run, where each process runs one graph once\n");
}

TEST_F(by_hand, a_replica_that_the_group_has_not_is_refused) {
    EXPECT_EQ(
        refusal({"AMALGAM_CONFIG=" + config_, "AMALGAM_GROUP=G2", "AMALGAM_REPLICA=1"}),
        "amalgam: AMALGAM_REPLICA is 1, but group G2 has 1 processes, expected a number below "
        "that\n");
    EXPECT_EQ(refusal({"AMALGAM_CONFIG=" + config_, "AMALGAM_GROUP=G2", "AMALGAM_REPLICA=x"}),
              "amalgam: AMALGAM_REPLICA is \"x\", expected a number from 0; example: 0\n");
}

TEST_F(by_hand, an_address_that_others_cannot_know_is_refused) {
    write_config("tcp://127.0.0.1:0?n=");
    std::string output = refusal({"AMALGAM_CONFIG=" + config_, "AMALGAM_GROUP=G1"});
    EXPECT_NE(output.find("groups.G1.endpoint is \"tcp://127.0.0.1:0?n=1\", which is not known "
                          "in advance"),
              std::string::npos)
        << output;
}

TEST_F(by_hand, a_control_line_that_nobody_answers_is_named) {
    EXPECT_EQ(refusal({"AMALGAM_CONTROL=0"})
                  .rfind("amalgam: AMALGAM_CONTROL is set, but no "
                         "launcher answers there",
                         0),
              0u);
}

}  // namespace
}  // namespace amalgam
