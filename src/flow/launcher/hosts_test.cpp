// `amalgam run` with groups on a second host over ssh, which tests/launchers/with_sshd sets up.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "contains.hpp"
#include "flow/run/reports_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using conformance::child_process;

/// The output of a command that must succeed.
std::string output_of(const std::string& command) {
    child_process done = child_process::run({"sh", "-c", command});
    std::string output = done.output();
    EXPECT_EQ(done.join(), 0) << command << ": " << output;
    return output;
}

class launcher_hosts : public testing::Test {
protected:
    void SetUp() override {
        const char* ssh = std::getenv("AMALGAM_TEST_SSH");
        if (ssh == nullptr) GTEST_SKIP() << "started without tests/launchers/with_sshd";
        ssh_ = ssh;
        // Neither host could open the other's endpoint.
        write_config(R"("G1": {"endpoint": "tcp://10.9.0.1:0"},
                        "G2": {"endpoint": "tcp://10.9.0.2:0", "host": "10.9.0.2",
                               "env": {"GREETING": "hello  'there'"}},
                        "G3": {"endpoint": "tcp://10.9.0.1:0"})");
    }

    void write_config(const std::string& groups) {
        std::ofstream(folder_ + "/c.json") << "{\"groups\": {" << groups << "}}";
    }
    child_process start(const std::vector<std::string>& command,
                        const std::vector<std::string>& options = {}) {
        std::vector<std::string> argv{AMALGAM_TOOL, "run", "-c",      folder_ + "/c.json",
                                      "--ssh",      ssh_,  "--grace", "10"};
        argv.insert(argv.end(), options.begin(), options.end());
        argv.push_back("--");
        argv.insert(argv.end(), command.begin(), command.end());
        return child_process::run(argv);
    }
    struct outcome {
        int code;
        std::string output;
    };
    outcome run(const std::vector<std::string>& command,
                const std::vector<std::string>& options = {}) {
        child_process launched = start(command, options);
        std::string output = launched.output();
        return {launched.join(), output};
    }
    outcome run_shell(const std::string& script, const std::vector<std::string>& options = {}) {
        return run({"sh", "-c", script}, options);
    }

    const temp_folder own_;
    const std::string folder_ = own_.path();
    std::string ssh_;
};

TEST_F(launcher_hosts, groups_on_two_hosts_run_one_graph) {
    auto [code, output] = run({FLOW_TEST_PROGRAM, "count"});
    EXPECT_EQ(code, 0);
    EXPECT_EQ(output, "[G3] got 1000\n");
}

/// Strangers at the endpoints of G2, on the other host, and of G3, on this one.
class launcher_hosts_with_strangers : public launcher_hosts {
protected:
    void SetUp() override {
        launcher_hosts::SetUp();
        if (IsSkipped()) return;
        write_config(R"("G1": {"endpoint": "tcp://10.9.0.1:0"},
                        "G2": {"endpoint": "tcp://10.9.0.2:7002", "host": "10.9.0.2"},
                        "G3": {"endpoint": "tcp://10.9.0.1:7003"})");
        reports_.emplace(folder_ + "/fifo");
    }
    child_process start_flowing(const std::vector<std::string>& options = {}) {
        child_process launched = start({FLOW_TEST_PROGRAM, "flowing", reports_->path()}, options);
        reports_->wait_for(1);  // From the sink, when items have arrived.
        return launched;
    }
    outcome tool(std::vector<std::string> words) {
        words.insert(words.begin(), AMALGAM_TOOL);
        child_process ran = child_process::run(words);
        std::string output = ran.output();
        return {ran.join(), output};
    }
    /// Returns what it said.
    std::string end(child_process& launched) {
        launched.signal(SIGTERM);
        std::string output = launched.output();
        // What a group logged before may come later, by way of ssh.
        EXPECT_NE(("\n" + output).find("\namalgam run: Terminated: stopped all groups\n"),
                  std::string::npos)
            << output;
        EXPECT_EQ(launched.join(), 128 + SIGTERM);
        reports_->wait_until_nothing_is_left();
        return output;
    }

private:
    std::optional<detail::test_reports> reports_;
};

TEST_F(launcher_hosts_with_strangers, a_run_lets_in_nobody_without_a_key_of_its_own) {
    ASSERT_EQ(tool({"key", "new", folder_ + "/lab", "--authority"}).code, 0);
    ASSERT_EQ(tool({"key", "new", folder_ + "/me", "--with", folder_ + "/lab"}).code, 0);
    child_process launched = start_flowing();
    for (const std::string at : {"10.9.0.2:7002", "10.9.0.1:7003"}) {
        const auto plain = tool({"ping", "--count", "1", "tcp://" + at});
        EXPECT_EQ(plain.code, 1) << plain.output;
        const auto other =
            tool({"ping", "--count", "1", "tcp+tls://" + at + "?credentials=" + folder_ + "/me"});
        EXPECT_EQ(other.code, 1) << other.output;
        // One who trusts everybody is told that he is not trusted.
        const std::string told =
            output_of("openssl s_client -brief -ign_eof -connect " + at +
                      " -alpn amalgam/1 -cert " + folder_ + "/me/certificate.pem -key " + folder_ +
                      "/me/key.pem 2>&1 " + "</dev/null || true");
        EXPECT_TRUE(contains(told, "TLSv1.3")) << told;
        EXPECT_TRUE(contains(told, "alert")) << told;
    }
    // It went on, and says who came.
    const std::string output = end(launched);
    for (const char* group : {"[G2] ", "[G3] "})
        EXPECT_NE(output.find("its key is not among the trusted ones", output.find(group)),
                  std::string::npos)
            << output;
}

TEST_F(launcher_hosts_with_strangers, a_run_that_is_told_to_be_insecure_lets_in_everybody) {
    child_process launched = start_flowing({"--insecure"});
    for (const std::string at : {"10.9.0.2:7002", "10.9.0.1:7003"})
        EXPECT_EQ(tool({"ping", "--count", "1", "tcp://" + at}).code, 0);
    EXPECT_EQ(end(launched), "amalgam run: Terminated: stopped all groups\n");
}

TEST_F(launcher_hosts, all_groups_may_be_elsewhere) {
    write_config(R"("G1": {"endpoint": "shm://", "host": "root@10.9.0.2"},
                    "G2": {"endpoint": "shm://", "replicas": 2, "host": ["10.9.0.2", "10.9.0.2"]},
                    "G3": {"endpoint": "shm://", "host": "ssh://10.9.0.2"})");
    auto [code, output] = run({FLOW_TEST_PROGRAM, "count"});
    EXPECT_EQ(code, 0);
    // The last item may overtake others, which the other replica has.
    EXPECT_TRUE(output.starts_with("[G3] got ")) << output;
}

TEST_F(launcher_hosts, environment_folder_and_arguments_are_as_here) {
    ::setenv("CARRIED", "a  \"b\"\n$c", 1);
    auto [code, output] = run({"sh", "-c",
                               "[ $AMALGAM_GROUP = G2 ] || exit 0; pwd; printf '%s\\n' "
                               "\"$CARRIED\" \"$GREETING\" \"$AMALGAM_REPLICA\" \"$1\"; "
                               "ip -br address | grep -c 10.9.0.2; echo wrong >&2",
                               "name", "two  words' \""});
    EXPECT_EQ(code, 1) << "no graph was run";
    char here[4096];
    for (const std::string& line :
         {std::string(::getcwd(here, sizeof here)), std::string("a  \"b\""), std::string("$c"),
          std::string("hello  'there'"), std::string("0"), std::string("two  words' \""),
          std::string("1"), std::string("wrong")})
        EXPECT_TRUE(contains(output, "[G2] " + line + "\n")) << line << " in " << output;
}

TEST_F(launcher_hosts, a_lot_of_output_arrives_whole_and_in_order) {
    auto [code, output] = run_shell("[ $AMALGAM_GROUP = G2 ] && seq 200000 || true");
    EXPECT_EQ(code, 1) << "no graph was run";
    // The sentence may be anywhere, since standard error is another pipe.
    const std::size_t sentence = output.find("amalgam run: no group has run");
    ASSERT_NE(sentence, std::string::npos) << output.size() << " bytes";
    output.erase(sentence, output.find('\n', sentence) + 1 - sentence);
    std::string expected;
    for (int i = 1; i <= 200000; ++i)
        expected += "[G2] " + std::to_string(i) + "\n";
    EXPECT_TRUE(output == expected) << output.size() << " bytes, expected " << expected.size();
}

TEST_F(launcher_hosts, the_exit_code_of_a_group_elsewhere_is_the_runs) {
    auto [code, output] = run({FLOW_TEST_PROGRAM, "exit"});
    EXPECT_EQ(code, 7);
    EXPECT_EQ(output,
              "amalgam run: group G2 (on 10.9.0.2) ended with exit code 7; stopped the others\n");
}

TEST_F(launcher_hosts, a_signal_that_ends_a_group_elsewhere_is_told_as_here) {
    auto [code, output] = run_shell("[ $AMALGAM_GROUP = G2 ] && kill -9 $$; exec sleep 1000");
    EXPECT_EQ(code, 128 + SIGKILL);
    EXPECT_TRUE(contains(output, "group G2 (on 10.9.0.2) ended with signal 9 (killed); stopped"))
        << output;
}

TEST_F(launcher_hosts, a_node_that_throws_elsewhere_is_blamed_by_name) {
    auto [code, output] = run({FLOW_TEST_PROGRAM, "throw"});
    EXPECT_EQ(code, 1);
    // It ends by itself, or by the request that the others' end brings.
    EXPECT_TRUE(contains(output, "amalgam run: group G2 (on 10.9.0.2) ")) << output;
    EXPECT_TRUE(
        contains(output, ": the node \"middle\" failed: no more than 100; stopped the others\n"))
        << output;
}

TEST_F(launcher_hosts, a_request_to_end_reaches_groups_elsewhere) {
    detail::test_reports reports(folder_ + "/fifo");
    child_process launched = start({"sh", "-c",
                                    "trap 'echo bye; exit 0' TERM; exec 9>" + reports.path() +
                                        "; echo G 1 >&9; while :; do sleep 0.01; done"},
                                   {"--view", "G2"});
    reports.wait_for(3);
    launched.signal(SIGTERM);
    EXPECT_TRUE(contains(launched.output(), "[G2] bye\n"));
    EXPECT_EQ(launched.join(), 128 + SIGTERM);
    reports.wait_until_nothing_is_left();
}

TEST_F(launcher_hosts, nothing_is_left_when_the_launcher_is_killed) {
    detail::test_reports reports(folder_ + "/fifo");
    child_process launched = start({FLOW_TEST_PROGRAM, "parent", reports.path()});
    reports.wait_for(6);
    launched.kill();
    reports.wait_until_nothing_is_left();
}

TEST_F(launcher_hosts, nothing_is_left_when_ssh_is_killed) {
    detail::test_reports reports(folder_ + "/fifo");
    child_process launched = start({FLOW_TEST_PROGRAM, "parent", reports.path()});
    reports.wait_for(6);
    output_of("pkill -9 -x ssh");  // Safe, as we have our own namespace.
    std::string output = launched.output();
    EXPECT_EQ(launched.join(), 255);
    EXPECT_TRUE(contains(output,
                         "group G2 (on 10.9.0.2) ended with exit code 255: lost the connection to "
                         "10.9.0.2: ssh ended with signal 9 (killed); stopped the others\n"))
        << output;
    reports.wait_until_nothing_is_left();
}

TEST_F(launcher_hosts, a_cut_cable_ends_both_sides) {
    detail::test_reports reports(folder_ + "/fifo");
    child_process launched =
        start({FLOW_TEST_PROGRAM, "parent", reports.path()}, {"--silence", "3"});
    reports.wait_for(6);
    output_of("ip link set wire down");
    std::string output = launched.output();
    EXPECT_NE(launched.join(), 0);
    EXPECT_TRUE(contains(output, "10.9.0.2 was silent for 3 s")) << output;
    reports.wait_until_nothing_is_left();
    output_of("ip link set wire up; ip address replace 10.9.0.1/24 dev wire");
}

TEST_F(launcher_hosts, a_host_that_is_not_there_is_told_with_a_command_to_try) {
    write_config(R"("G1": {"endpoint": "tcp://10.9.0.1:0"},
                    "G2": {"endpoint": "tcp://10.9.0.3:0", "host": "me@nowhere.invalid"},
                    "G3": {"endpoint": "tcp://10.9.0.1:0"})");
    auto [code, output] = run({FLOW_TEST_PROGRAM, "count"});
    EXPECT_EQ(code, 255);
    EXPECT_TRUE(
        contains(output,
                 "amalgam run: group G2 (on me@nowhere.invalid) ended with exit code 255: ssh "
                 "cannot reach me@nowhere.invalid, expected a login without a password and the "
                 "same version of amalgam; try: "))
        << output;
}

TEST_F(launcher_hosts, an_amalgam_that_is_not_there_is_told) {
    auto [code, output] =
        run({FLOW_TEST_PROGRAM, "count"}, {"--remote-amalgam", "/no/such/amalgam"});
    EXPECT_EQ(code, 127);
    EXPECT_TRUE(contains(
        output,
        ": there is no program \"/no/such/amalgam\" on 10.9.0.2, expected amalgam to be installed "
        "there; example: --remote-amalgam /usr/local/bin/amalgam; stopped the others\n"))
        << output;
}

TEST_F(launcher_hosts, a_program_that_is_not_there_is_told) {
    write_config(R"("G1": {"endpoint": "shm://", "host": "10.9.0.2"})");
    auto [code, output] = run({"./no-such-program"});
    EXPECT_EQ(code, 126);
    EXPECT_TRUE(contains(output,
                         "amalgam run: group G1 (on 10.9.0.2) ended with exit code 126: the "
                         "program \"./no-such-program\" cannot be run (No such file"))
        << output;
}

TEST_F(launcher_hosts, an_ssh_that_is_not_there_starts_nothing) {
    ssh_ = "no-such-ssh -p 22";
    auto [code, output] = run({FLOW_TEST_PROGRAM, "count"});
    EXPECT_EQ(code, 2);
    EXPECT_TRUE(contains(output, "amalgam: the program \"no-such-ssh\" cannot be run")) << output;
}

}  // namespace
}  // namespace amalgam
