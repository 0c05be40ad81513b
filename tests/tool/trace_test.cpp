#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "contains.hpp"
#include "run_tool.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"

// `amalgam trace` as users run it, on programs that end in several ways. Each trace is checked
// against the published format by check_chrome_trace.

namespace amalgam {
namespace {

using tool_testing::outcome;
using tool_testing::run_tool;

const std::string tool = shell_word(AMALGAM_TOOL);
const std::string program = shell_word(AMALGAM_TRACED_PROGRAM);

struct traced : testing::Test {
    temp_folder folder;
    const std::string file = folder.with("trace.json");

    outcome trace(const std::string& arguments, const std::string& before = "") {
        return run_tool(before + tool, "trace -o " + file + " " + arguments);
    }
    /// What the checker found in the file.
    nlohmann::json checked() {
        const outcome check = run_tool(shell_word(AMALGAM_CHECK_CHROME_TRACE), file);
        EXPECT_EQ(check.code, 0) << check.output;
        return check.code == 0 ? nlohmann::json::parse(check.output) : nlohmann::json{};
    }
    /// Nothing but the trace: no part of it, and nothing that was recorded.
    void expect_only_the_file() {
        for (const auto& each : std::filesystem::directory_iterator(folder.path()))
            EXPECT_EQ(each.path().string(), file);
    }
};

TEST_F(traced, two_processes_are_one_trace_with_arrows_from_calls_to_handlers) {
    const outcome ran = trace("-- " + program + " two", "TMPDIR=" + folder.path() + " ");
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(contains(ran.output, "open it at ui.perfetto.dev")) << ran.output;
    expect_only_the_file();
    const auto found = checked();
    EXPECT_EQ(found["processes"], 2) << found;
    EXPECT_EQ(found["slices"]["call node"], 2) << found;
    EXPECT_EQ(found["slices"]["handler node"], 2) << found;
    EXPECT_EQ(found["slices"]["handler leaf"], 2) << found;
    EXPECT_EQ(found["slices"]["one-way call note"], 1) << found;
    EXPECT_EQ(found["slices"]["handler note"], 1) << found;
    // "size" pulls what its caller exposes.
    const int pulled = found["transfers_under_handlers"];
    EXPECT_GE(pulled, 1) << found;
    EXPECT_EQ(found["slices"]["transfer get"], pulled) << found;
    EXPECT_EQ(found["transfers_for_calls_of_other_processes"], pulled) << found;
    EXPECT_GE(found["slices"]["part waits for a stream"], 5) << found;
    // Two of node, one of fails, note and size; two of leaf within the server.
    EXPECT_EQ(found["flows_between_processes"], 5) << found;
    EXPECT_EQ(found["flows"], 7 + pulled) << found;
    EXPECT_EQ(found["backward_flows"], 0) << found;
    EXPECT_EQ(found["statuses"]["handler_failed"], 2) << found;
    EXPECT_GE(found["units"], 5) << found;
    EXPECT_GE(found["waits"]["waits for rpc reply"], 2) << found;
}

TEST_F(traced, streams_of_values_are_spans_with_their_batches) {
    const outcome ran = trace("-- " + program + " streams");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto found = checked();
    EXPECT_EQ(found["slices"]["stream count"], 1) << found;
    EXPECT_EQ(found["slices"]["stream add_up"], 1) << found;
    for (const char* name : {"count", "add_up"}) {
        const auto& seen = found["streams"][name];
        EXPECT_EQ(seen["values"], 100) << found;
        EXPECT_EQ(seen["bytes"], 400) << found;
        EXPECT_EQ(seen["under_handler"], true) << found;
        EXPECT_EQ(seen["values_of_batches"], 100) << found;
        EXPECT_EQ(seen["bytes_of_batches"], 400) << found;
        EXPECT_EQ(seen["batches_outside"], 0) << found;
        EXPECT_GE(seen["batches"], 2) << found;
    }
}

TEST_F(traced, what_a_killed_process_recorded_is_there) {
    const outcome ran = trace("-- " + program + " killed");
    EXPECT_EQ(ran.code, 128 + SIGKILL) << ran.output;
    const auto found = checked();
    EXPECT_EQ(found["slices"]["call node"], 3) << found;
    EXPECT_EQ(found["slices"]["handler leaf"], 3) << found;
}

TEST_F(traced, a_child_of_fork_records_as_a_process_of_its_own) {
    const outcome ran = trace("-- " + program + " fork");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto found = checked();
    EXPECT_EQ(found["processes"], 2) << found;
    EXPECT_EQ(found["slices"]["call node"], 1 + 2 + 3) << found;
}

TEST_F(traced, exec_in_the_same_process_begins_another_one) {
    const outcome ran = trace("-- " + program + " exec");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto found = checked();
    EXPECT_EQ(found["processes"], 2) << found;
    EXPECT_EQ(found["slices"]["call node"], 1 + 2) << found;
}

TEST_F(traced, a_sample_has_whole_traces) {
    const outcome ran = trace("--rate 0.1 -- " + program + " calls 300");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto found = checked();
    const int calls = found["slices"].value("call node", 0);
    EXPECT_GT(calls, 0) << found;  // None of 300: once in 10^13 runs.
    EXPECT_LT(calls, 150) << found;
    EXPECT_EQ(found["slices"]["handler node"], calls) << found;
    EXPECT_EQ(found["slices"]["call leaf"], calls) << found;
    EXPECT_EQ(found["slices"]["handler leaf"], calls) << found;
}

TEST_F(traced, what_finds_no_room_is_counted) {
    const outcome ran = trace("--mib 1 -- " + program + " calls 3000");
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(contains(ran.output, "without room: see --rate and --mib")) << ran.output;
    checked();
}

TEST_F(traced, a_full_disk_ends_the_recording_and_not_the_program) {
    const std::string mount = "unshare -rm sh -c 'mount -t tmpfs -o size=1m none " + folder.path() +
                              " && cd " + folder.path() + " && ";
    if (run_tool(mount + "true'", "").code != 0) GTEST_SKIP() << "no name spaces here";
    const outcome ran = run_tool(mount + "AMALGAM_TRACE=. " + program + " calls 4000 && ls && " +
                                     tool + " trace -o /dev/null --from .'",
                                 "");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(contains(ran.output, "without room")) << ran.output;
    // Not even the beginning fits.
    const outcome none = run_tool(
        mount + "head -c 900k /dev/zero >a && AMALGAM_TRACE=. " + program + " calls 3 && ls'", "");
    EXPECT_EQ(none.code, 0) << none.output;
    EXPECT_TRUE(contains(none.output, "nothing is traced: cannot write to the folder"))
        << none.output;
    EXPECT_FALSE(contains(none.output, ".amtrace")) << none.output;
}

TEST_F(traced, a_trace_that_cannot_be_written_leaves_the_code_of_the_program) {
    const outcome full = run_tool(tool, "trace -o /dev/full -- " + program + " calls 1");
    EXPECT_EQ(full.code, 1) << full.output;
    EXPECT_TRUE(contains(full.output, "cannot write the trace to \"/dev/full\"")) << full.output;
    const outcome nowhere =
        run_tool(tool, "trace -o " + folder.with("none/t.json") + " -- " + program + " exit 0");
    EXPECT_EQ(nowhere.code, 1) << nowhere.output;
    EXPECT_TRUE(contains(nowhere.output, "cannot write to the folder of")) << nowhere.output;
    EXPECT_TRUE(contains(nowhere.output, "example: -o /tmp/trace.json")) << nowhere.output;
}

TEST_F(traced, a_failed_attempt_leaves_the_file_as_it_was) {
    std::ofstream(file) << "before";
    const outcome ran = trace("-- " + program + " exit 7");
    EXPECT_EQ(ran.code, 7) << ran.output;
    EXPECT_TRUE(contains(ran.output, "nothing was recorded; expected a program of Amalgam"))
        << ran.output;
    std::string text;
    std::ifstream(file) >> text;
    EXPECT_EQ(text, "before");
    expect_only_the_file();
}

TEST_F(traced, a_program_that_does_not_start_is_told) {
    const outcome ran = trace("-- " + folder.with("none"));
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_TRUE(contains(ran.output, "(No such file or directory); expected a program; example: "))
        << ran.output;
    const outcome none = run_tool(tool, "trace");
    EXPECT_EQ(none.code, 2) << none.output;
    EXPECT_TRUE(contains(none.output, "example: amalgam trace -o trace.json -- ./program"))
        << none.output;
}

TEST_F(traced, files_that_are_no_traces_are_told_and_left_out) {
    const std::string records = folder.with("records");
    std::filesystem::create_directory(records);
    const outcome ran = run_tool("AMALGAM_TRACE=" + records + " " + program, "calls 2");
    ASSERT_EQ(ran.code, 0) << ran.output;
    std::ofstream(records + "/1-2.amtrace") << "short";
    std::ofstream(records + "/notes.txt") << "no business of ours";
    const outcome gathered = trace("--from " + records);
    EXPECT_EQ(gathered.code, 0) << gathered.output;
    EXPECT_TRUE(contains(gathered.output, "1-2.amtrace: it is too short")) << gathered.output;
    EXPECT_EQ(checked()["slices"]["call node"], 2);
}

TEST_F(traced, a_program_that_changes_its_folder_is_traced_where_TMPDIR_is_relative) {
    const outcome ran =
        run_tool("cd " + folder.path() + " && TMPDIR=. " + tool,
                 "trace -o " + file + " -- sh -c 'cd / && exec " + program + " calls 2'");
    EXPECT_EQ(ran.code, 0) << ran.output;
    expect_only_the_file();
    EXPECT_EQ(checked()["slices"]["call node"], 2);
}

TEST_F(traced, a_reader_that_ends_leaves_nothing_behind) {
    const outcome ran =
        run_tool("TMPDIR=" + folder.path() + " " + tool,
                 "trace -o - -- " + program + " calls 3000 2>&1 | head -c 9 >/dev/null");
    EXPECT_EQ(ran.code, 0) << ran.output;
    expect_only_the_file();
}

TEST_F(traced, a_signal_ends_the_wait_for_a_reader_and_nothing_is_left_behind) {
    const std::string fifo = folder.with("fifo");
    const outcome ran =
        run_tool("bash -c 'mkfifo " + fifo + "; TMPDIR=" + folder.path() + " " + tool +
                     " trace -o " + fifo + " -- " + program + " calls 1 & ends=never; " +
                     "for i in $(seq 400); do if kill -INT $! 2>&-; then sleep 0.05; "
                     "else ends=now; break; fi; done; echo ends $ends; kill -KILL $! 2>&-; wait; "
                     "rm " +
                     fifo + "'",
                 "");
    EXPECT_TRUE(contains(ran.output, "ends now")) << ran.output;
    EXPECT_TRUE(contains(ran.output, "Interrupted system call")) << ran.output;
    expect_only_the_file();
}

TEST_F(traced, a_setuid_program_does_not_write_where_its_caller_says) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a setuid program";
    std::filesystem::permissions(folder.path(), std::filesystem::perms{0777});
    const std::string as_nobody = "setpriv --reuid 65534 --clear-groups ";
    const auto setuid = [&](const std::string& from, const std::string& name) {
        std::filesystem::copy_file(from, folder.with(name));
        std::filesystem::permissions(folder.with(name), std::filesystem::perms{04755});
        return as_nobody + folder.with(name);
    };
    const std::string who = setuid("/usr/bin/id", "who");
    if (run_tool(who, "-un").output != "root\n") GTEST_SKIP() << "no setuid programs here";
    std::filesystem::create_directory(folder.with("records"));
    const std::string set = "env AMALGAM_TRACE=" + folder.with("records") + " ";
    const std::string ours = setuid(AMALGAM_TRACED_PROGRAM, "program");
    EXPECT_EQ(run_tool(set + ours, "calls 1").code, 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder.with("records")));
    std::filesystem::permissions(folder.with("program"), std::filesystem::perms{0755});
    std::filesystem::permissions(folder.with("records"), std::filesystem::perms{0777});
    EXPECT_EQ(run_tool(set + ours, "calls 1").code, 0);
    EXPECT_FALSE(std::filesystem::is_empty(folder.with("records")));
}

TEST_F(traced, what_files_say_is_no_command_for_the_terminal) {
    const std::string records = folder.with("records");
    std::filesystem::create_directory(records);
    // The name of the program as the kernel has it.
    const outcome ran = run_tool("AMALGAM_TRACE=" + records + " bash -c 'exec -a \"$(printf " +
                                     std::string("\"a\\033[31mb\")\" ") + program + " calls 1'",
                                 "");
    ASSERT_EQ(ran.code, 0) << ran.output;
    std::ofstream(records + "/\x1b[31m.amtrace") << "short";
    const outcome gathered = trace("--from " + records);
    EXPECT_EQ(gathered.code, 0) << gathered.output;
    EXPECT_FALSE(contains(gathered.output, "\x1b")) << gathered.output;
    EXPECT_TRUE(contains(gathered.output, "traced a\\x1b[31mb (pid ")) << gathered.output;
}

TEST(slow_call_log, names_the_handler_that_took_long) {
    const outcome ran = run_tool("AMALGAM_SLOW_CALLS=30ms " + program, "slow");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(contains(ran.output, "slow call procedure=slow peer=shm://")) << ran.output;
    EXPECT_TRUE(contains(ran.output, "status=ok")) << ran.output;
    EXPECT_TRUE(contains(ran.output, "mostly=\"in the handler\"")) << ran.output;
    EXPECT_TRUE(contains(ran.output, "waited_ms=")) << ran.output;
    const outcome fast = run_tool("AMALGAM_SLOW_CALLS=3000s " + program, "slow");
    EXPECT_EQ(fast.output, "");
    const outcome wrong = run_tool("AMALGAM_SLOW_CALLS=soon " + program, "slow");
    EXPECT_EQ(wrong.code, 0) << wrong.output;
    EXPECT_TRUE(contains(wrong.output, "example: AMALGAM_SLOW_CALLS=100ms")) << wrong.output;
}

TEST_F(traced, no_folder_is_a_line_in_the_log) {
    const outcome ran = run_tool("AMALGAM_TRACE=" + folder.with("none") + " " + program, "calls 1");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(contains(ran.output, "nothing is traced: cannot write to the folder"))
        << ran.output;
    EXPECT_TRUE(contains(ran.output, "example: AMALGAM_TRACE=/tmp/trace")) << ran.output;
}

}  // namespace
}  // namespace amalgam
