// `amalgam run --checkpoints`: processes that are killed at any moment change nothing in the
// result.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>

#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "contains.hpp"
#include "flow/checkpoints/summing_graph.hpp"
#include "flow/launcher/launcher_testing.hpp"
#include "http_client.hpp"
#include "shell_word.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

constexpr std::uint64_t items = 30'000;
constexpr std::uint64_t many = 300'000;  // Takes some seconds.

class checkpointed_run : public launcher {
protected:
    void SetUp() override { listen_at("shm://"); }

    void listen_at(const std::string& endpoint) {
        write_config(fmt::format(R"({{"groups": {{"G0": {{"endpoint": "{0}"}},
                                               "G1": {{"endpoint": "{0}", "replicas": 2}},
                                               "G2": {{"endpoint": "{0}"}}}}}})",
                                 endpoint));
    }
    /// `group` is killed after so many items of its own, so often.
    outcome run_with_deaths(const std::string& group, std::uint64_t after, int times,
                            std::vector<std::string> options) {
        for (int i = 0; i < 9; ++i)
            std::filesystem::remove(fmt::format("{}/died.{}", folder_, i));
        options.insert(options.end(), {"--checkpoints", folder_ + "/saved"});
        return run({"summing", std::to_string(items), folder_, group, std::to_string(after),
                    std::to_string(times)},
                   options);
    }
    /// A long run whose page is told in `fifo`.
    child_process launch_with_page(const std::string& fifo,
                                   const std::vector<std::string>& options = {}) {
        return launch_with_page(fifo, options, fmt::format("summing {} {}", many, folder_));
    }
    child_process launch_with_page(const std::string& fifo, const std::vector<std::string>& options,
                                   const std::string& mode) {
        const std::string command = fmt::format(
            "exec {} run -c {}/c.json --web --checkpoints {}/saved --restarts 1 --grace 1 {} -- "
            "{} {} 2> {}",
            shell_word(AMALGAM_TOOL), folder_, folder_, fmt::join(options, " "),
            shell_word(FLOW_TEST_PROGRAM), mode, fifo);
        return child_process::run({"/bin/sh", "-c", command});
    }
    /// In the page's last state, once it shows that they run.
    static std::vector<pid_t> processes_in(const std::string& shown) {
        const std::string state = shown.substr(shown.rfind("event: state"));
        const std::string where = R"("where":"pid )";
        std::vector<pid_t> found;
        for (std::size_t at = 0; (at = state.find(where, at)) != std::string::npos;)
            found.push_back(std::stoi(state.substr(at += where.size())));
        return found;
    }
    const std::string running = R"("state":"running","running":true)";

    static std::string right(std::uint64_t sent = items) {
        const auto all = detail::summing::expected(sent);
        return fmt::format("[G2] items {} sum {} counts {}\n", all.items, all.sum, all.counts);
    }
};

TEST_F(checkpointed_run, killed_groups_go_on_and_nothing_is_lost_or_comes_twice) {
    std::size_t from_checkpoints = 0;
    std::uint64_t seed = 1;
    for (const std::string endpoint : {"shm://", "tcp://127.0.0.1:0"}) {
        listen_at(endpoint);
        for (const std::string group : {"G0", "G1", "G2"}) {
            for (int i = 0; i < 3; ++i) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                const std::uint64_t all = group == "G0" ? items / 3 : items / 2;
                const std::uint64_t after = 1 + (seed >> 33) % all;
                const auto [code, output] =
                    run_with_deaths(group, after, 2,
                                    {"--checkpoint-every", "0.02", "--restarts", "4",
                                     "--from-start", "--grace", "1"});
                EXPECT_EQ(code, 0) << output;
                EXPECT_EQ(lines_with(output, "[G2] items "), 1u) << output;
                EXPECT_TRUE(contains(output, right())) << group << after << output;
                from_checkpoints += lines_with(output, "all groups go on from checkpoint ");
                // A run that has ended well leaves nothing for --resume.
                EXPECT_FALSE(std::filesystem::exists(folder_ + "/saved/complete"));
            }
        }
    }
    EXPECT_GT(from_checkpoints, 6u);
}

TEST_F(checkpointed_run, without_a_complete_checkpoint_a_lost_group_ends_the_run_unless_told) {
    const auto [code, output] = run_with_deaths("G1", 100, 1, {"--restarts", "2"});
    EXPECT_EQ(code, 128 + SIGKILL) << output;
    EXPECT_TRUE(contains(output, "the run is not started again: no checkpoint is complete"))
        << output;
    const auto again = run_with_deaths("G1", 100, 1, {"--restarts", "2", "--from-start"});
    EXPECT_EQ(again.code, 0) << again.output;
    EXPECT_TRUE(contains(again.output, "restart 1 of 2: all groups go on from the start"))
        << again.output;
    EXPECT_TRUE(contains(again.output, right())) << again.output;
}

TEST_F(checkpointed_run, a_group_that_is_lost_too_often_ends_the_run_and_a_later_one_resumes) {
    // Late enough that a checkpoint is complete on every host: each item of the sink is one.
    const std::vector<std::string> often{"--checkpoint-every", "0.01"};
    const auto [code, output] = run_with_deaths("G2", items, 1, often);
    EXPECT_EQ(code, 128 + SIGKILL) << output;
    ASSERT_TRUE(contains(output, "--resume goes on from it")) << output;

    const auto unwanted = run_with_deaths("none", 1, 0, often);
    EXPECT_EQ(unwanted.code, 2) << unwanted.output;
    EXPECT_TRUE(contains(unwanted.output, "expected --resume to go on from it")) << unwanted.output;

    write_config(R"({"groups": {"G0": {"endpoint": "shm://"}, "G1": {"endpoint": "shm://"},
                                "G2": {"endpoint": "shm://"}}})");
    const auto other = run_with_deaths("none", 1, 0, {"--resume"});
    EXPECT_EQ(other.code, 2) << other.output;
    EXPECT_TRUE(contains(other.output, "expected the same groups and replicas")) << other.output;

    listen_at("shm://");
    const auto resumed = run_with_deaths("none", 1, 0, {"--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.output;
    EXPECT_TRUE(contains(resumed.output, right())) << resumed.output;
}

TEST_F(checkpointed_run, a_node_that_throws_ends_the_run_and_is_not_started_again) {
    const auto [code, output] = run_with_deaths(
        "G1", 5000, 0, {"--checkpoint-every", "0.01", "--restarts", "3", "--from-start"});
    EXPECT_EQ(code, 1) << output;
    EXPECT_TRUE(contains(output, "failed: no more of these")) << output;
    EXPECT_FALSE(contains(output, "restart ")) << output;
}

TEST_F(checkpointed_run, a_group_that_is_silent_is_lost_too) {
    const auto [code, output] = run_with_deaths(
        "G1", 5000, -1, {"--checkpoint-every", "0.02", "--restarts", "1", "--grace", "1"});
    EXPECT_EQ(code, 0) << output;
    EXPECT_TRUE(contains(output, "lost contact with group G1.")) << output;
    EXPECT_TRUE(contains(output, "restart 1 of 1: all groups go on from checkpoint ")) << output;
    EXPECT_TRUE(contains(output, right())) << output;
}

TEST_F(checkpointed_run, a_trace_has_marks_of_checkpoints_and_of_the_restart_in_each_process) {
    const std::string recorded = folder_ + "/recorded", file = folder_ + "/trace.json";
    std::filesystem::create_directory(recorded);
    ::setenv("AMALGAM_TRACE", recorded.c_str(), 1);
    const auto [code, output] = run_with_deaths(
        "G1", 5000, 1, {"--checkpoint-every", "0.02", "--restarts", "2", "--grace", "1"});
    ::unsetenv("AMALGAM_TRACE");
    ASSERT_EQ(code, 0) << output;
    const gathered_trace told = write_chrome_trace({{recorded}}, file);
    EXPECT_GE(told.processes.size(), 8u);  // Those that were lost, too.
    std::map<std::string, std::set<std::int64_t>> processes;
    const auto trace = nlohmann::json::parse(std::ifstream(file));
    for (const auto& event : trace.at("traceEvents")) {
        if (event.at("ph") != "i") continue;
        processes[event.at("name")].insert(event.at("pid").get<std::int64_t>());
        if (event.at("name") != "restart") continue;
        const auto why = event.at("args").at("what").get<std::string>();
        EXPECT_TRUE(contains(why, "of 2, from checkpoint ")) << why;
    }
    EXPECT_GE(processes["restart"].size(), 4u);
    EXPECT_GE(processes["checkpoint"].size(), 4u);
}

TEST_F(checkpointed_run,
       a_program_whose_nodes_say_nothing_of_their_state_is_refused_before_it_runs) {
    launcher::SetUp();
    const auto [code, output] =
        run({"throw"}, {"--checkpoints", folder_ + "/saved", "--restarts", "3", "--from-start"});
    // Its nodes have no steps and no serialize(): refused before the run.
    EXPECT_EQ(code, 2) << output;
    EXPECT_TRUE(contains(output, "the node \"from\" is a source that runs on its own")) << output;
    EXPECT_FALSE(contains(output, "restart")) << output;
}

TEST_F(checkpointed_run, options_that_do_not_fit_are_refused_before_anything_starts) {
    const auto alone = run({"summing"}, {"--restarts", "3"});
    EXPECT_EQ(alone.code, 2);
    EXPECT_TRUE(contains(alone.output, "is given without --checkpoints")) << alone.output;
    const auto none = run_with_deaths("none", 1, 0, {"--resume"});
    EXPECT_EQ(none.code, 2);
    EXPECT_TRUE(contains(none.output, "has no complete checkpoint")) << none.output;
    write_config(R"({"groups": {"G0": {"endpoint": "shm://", "host": "node7"},
                                "G1": {"endpoint": "shm://"}, "G2": {"endpoint": "shm://"}}})");
    const auto hosts = run_with_deaths("none", 1, 0, {});
    EXPECT_EQ(hosts.code, 2);
    EXPECT_TRUE(contains(hosts.output, "groups.G0.host is \"node7\"")) << hosts.output;
}

TEST_F(checkpointed_run, keeps_the_checkpoint_where_nothing_has_run) {
    const auto [code, output] = run_with_deaths("G2", items, 1, {"--checkpoint-every", "0.01"});
    ASSERT_TRUE(contains(output, "--resume goes on from it")) << output;
    ::setenv("AMALGAM_SHOW", "dot", 1);
    const auto shown = run_with_deaths("none", 1, 0, {"--resume"});
    ::unsetenv("AMALGAM_SHOW");
    EXPECT_EQ(shown.code, 0) << shown.output;
    EXPECT_TRUE(std::filesystem::exists(folder_ + "/saved/complete"));

    // Nor does it say that --resume goes on, where that was just refused.
    for (const auto& each : std::filesystem::recursive_directory_iterator(folder_ + "/saved"))
        if (each.path().filename() == "G2") std::filesystem::resize_file(each.path(), 40);
    const auto damaged = run_with_deaths("none", 1, 0, {"--resume"});
    EXPECT_EQ(damaged.code, 2) << damaged.output;
    EXPECT_TRUE(contains(damaged.output, "is damaged")) << damaged.output;
    EXPECT_FALSE(contains(damaged.output, "--resume goes on")) << damaged.output;
}

TEST_F(checkpointed_run, a_relative_folder_is_refused_where_the_current_one_is_gone) {
    const std::string gone = folder_ + "/gone";
    std::filesystem::create_directory(gone);
    child_process launched = child_process::run(
        {"/bin/sh", "-c",
         fmt::format("cd {0} && rmdir {0} && exec {1} run -c {2}/c.json --checkpoints saved -- {3} "
                     "summing 1 {2}",
                     gone, shell_word(AMALGAM_TOOL), folder_, shell_word(FLOW_TEST_PROGRAM))});
    const std::string output = launched.output();
    EXPECT_EQ(launched.join(), 2) << output;
    EXPECT_TRUE(contains(output, "--checkpoints: \"saved\" cannot be found again")) << output;
}

TEST_F(checkpointed_run, a_group_that_no_thread_is_left_for_ends_the_run_and_says_what_to_do) {
    if (detail::sanitized) GTEST_SKIP() << "threads cannot run out";
    std::size_t spare = 0;
    std::set<std::string> told;
    for (;; ++spare) {
        const auto [code, output] =
            run({"threads", std::to_string(spare), "1000", folder_},
                {"--checkpoints", folder_ + "/saved", "--report", folder_ + "/report.json"});
        if (code == 0) {
            EXPECT_EQ(output, right(1000));
            break;
        }
        EXPECT_EQ(lines_with(output, "raise the limit on processes (ulimit -u)"), 1u) << output;
        for (const std::string thread : {"for stream", "that writes checkpoints",
                                         "that listens to the launcher", "that reports on the run"})
            if (contains(output, "cannot create a thread " + thread)) told.insert(thread);
    }
    EXPECT_EQ(told.size(), 4u) << fmt::format("{}", told);
}

TEST_F(checkpointed_run, groups_whose_names_no_file_can_have_are_refused) {
    write_config(R"({"groups": {"a/b": {"endpoint": "shm://"}, "G1": {"endpoint": "shm://"}}})");
    const auto [code, output] = run_with_deaths("none", 1, 0, {});
    EXPECT_EQ(code, 2) << output;
    EXPECT_TRUE(contains(output, "names that a file can have")) << output;
}

/// What `amalgam run` says, line by line, and its live page.
class page_of_run {
public:
    explicit page_of_run(const std::string& fifo) : said_(fifo) {
        const std::string line = wait_for("http://");
        const std::size_t at = line.find("http://") + 7;
        host_ = line.substr(at, line.find('/', at) - at);
        token_ = line.substr(line.find("token=") + 6);
        events_ = open_another();
    }
    /// A connection on which the page's states come.
    unique_fd open_another() const {
        unique_fd events = connect_to(host_);
        say(events, "GET /events?token=" + token_ + " HTTP/1.1\r\nHost: " + host_ + "\r\n\r\n");
        return events;
    }
    /// The next line with that text; fails at the end.
    std::string wait_for(const std::string& text) {
        for (std::string line; std::getline(said_, line);) {
            all_ += line + "\n";
            if (contains(line, text)) return line;
        }
        ADD_FAILURE() << "\"" << text << "\" was not said after " << all_;
        return {};
    }
    /// What the page shows from now on, until that text.
    std::string shown_until(const std::string& text) { return shown_until(events_, text); }
    static std::string shown_until(const unique_fd& events, const std::string& text) {
        std::string shown;
        char part[4096];
        while (!contains(shown, text)) {
            const ssize_t got = ::recv(events.get(), part, sizeof part, 0);
            if (got <= 0) {
                ADD_FAILURE() << "the page ended before " << text;
                break;
            }
            shown.append(part, static_cast<std::size_t>(got));
        }
        return shown;
    }
    void press(const std::string& path) {
        const std::string answer = ask(host_, "POST " + path + " HTTP/1.1\r\nHost: " + host_ +
                                                  "\r\nX-Amalgam-Token: " + token_ +
                                                  "\r\nOrigin: http://" + host_ + "\r\n\r\n");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    }

    /// All that was said so far.
    const std::string& all() const { return all_; }

private:
    std::ifstream said_;
    std::string all_, host_, token_;
    unique_fd events_;
};

TEST_F(checkpointed_run, that_is_asked_to_end_after_a_loss_is_not_started_again) {
    // Who asks after the grace of launch_with_page() asks too late, and as late may be whose
    // machine is busy.
    constexpr std::chrono::milliseconds early_enough(500);
    for (int ways = 0; ways < 2;) {
        const bool by_signal = ways == 0;
        std::filesystem::remove_all(folder_ + "/saved");
        const std::string fifo = folder_ + "/said";
        std::filesystem::remove(fifo);
        ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
        child_process launched = launch_with_page(fifo, {"--from-start"});
        page_of_run page(fifo);
        const std::string shown = page.shown_until(running);
        const std::vector<pid_t> processes = processes_in(shown);
        ASSERT_EQ(processes.size(), 4u) << shown;
        for (const std::size_t other : {1, 2, 3})
            stop_and_wait(processes[other]);  // So that they do not end at once, as they are told.
        const auto began = std::chrono::steady_clock::now();
        ::kill(processes[0], SIGKILL);
        page.shown_until(R"("state":"stopping")");
        if (by_signal)
            ::kill(launched.pid(), SIGINT);
        else
            page.press("/stop");
        if (std::chrono::steady_clock::now() - began > early_enough) continue;
        ++ways;
        page.wait_for(by_signal ? "Interrupt: stopped all groups" : "the stop button");
        EXPECT_FALSE(contains(page.all(), "restart 1 of 1"));
        EXPECT_EQ(launched.join(), by_signal ? 128 + SIGINT : 128 + SIGTERM);
    }
}

TEST_F(checkpointed_run, a_stop_that_waits_for_a_group_ends_the_run_when_that_group_has_ended) {
    write_config(R"({"groups": {"G1": {"endpoint": "shm://"}, "G2": {"endpoint": "shm://"}}})");
    const std::string fifo = folder_ + "/said";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    child_process launched = launch_with_page(fifo, {}, "parted");
    page_of_run page(fifo);
    page.wait_for("this part has ended");
    const std::vector<pid_t> processes = processes_in(page.shown_until(running));
    ASSERT_EQ(processes.size(), 2u);
    // One has the number of the descriptor on which that group was spoken to.
    std::vector<unique_fd> pages;
    for (int i = 0; i < 4; ++i)
        page.shown_until(pages.emplace_back(page.open_another()), "state");
    page.press("/stop");
    for (const unique_fd& each : pages) {
        const std::string shown = page.shown_until(each, "the next press of stop ends it at once");
        EXPECT_FALSE(contains(shown, R"("kind")")) << shown;
    }
    for (const pid_t each : processes)
        ::kill(each, SIGUSR1);
    EXPECT_EQ(launched.join(), 128 + SIGTERM);
    page.wait_for("the stop button of the live page was pressed");
}

TEST_F(checkpointed_run, page_survives_a_killed_group_and_its_buttons_lose_nothing) {
    const std::string fifo = folder_ + "/said";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    child_process launched = launch_with_page(fifo);
    page_of_run page(fifo);
    const std::string shown = page.shown_until(running);
    page.press("/checkpoint");
    page.wait_for("checkpoint 1 is complete");

    ::kill(processes_in(shown).back(), SIGKILL);
    page.wait_for("restart 1 of 1: all groups go on from checkpoint 1");
    page.shown_until("restart 1 of 1");  // The same page, on the same connection.
    page.shown_until(running);

    // A stop whose checkpoint fails stops nothing: not now, and not at the next checkpoint.
    std::filesystem::rename(folder_ + "/saved", folder_ + "/elsewhere");
    page.press("/stop");
    page.wait_for("could not be taken");
    std::filesystem::rename(folder_ + "/elsewhere", folder_ + "/saved");
    page.press("/checkpoint");
    page.wait_for("is complete");
    page.shown_until(running);

    page.press("/stop");
    page.wait_for("is complete");
    page.wait_for("the stop button of the live page was pressed");
    page.wait_for("--resume goes on from it");
    EXPECT_EQ(launched.join(), 128 + SIGTERM);

    const auto resumed = run({"summing", std::to_string(many), folder_},
                             {"--checkpoints", folder_ + "/saved", "--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.output;
    EXPECT_EQ(resumed.output, right(many));
}

}  // namespace
}  // namespace amalgam
