// A run seen from outside: what its processes tell, and who is told.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/run_status.hpp>

#include "contains.hpp"
#include "flow/launcher/launcher_testing.hpp"
#include "flow/launcher/run_watch.hpp"
#include "flow/status/run_socket.hpp"
#include "flow/status/status_codec.hpp"
#include "shell_word.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

const process_status& process_of(const run_status& run, const std::string& label) {
    const auto found =
        std::find_if(run.processes.begin(), run.processes.end(),
                     [&](const process_status& each) { return each.label == label; });
    if (found == run.processes.end()) throw std::runtime_error("no process " + label);
    return *found;
}

/// A run whose items flow.
class watched_run : public launcher_with_reports {
protected:
    static bool all_have_answered(const run_status& run) {
        return std::all_of(run.processes.begin(), run.processes.end(),
                           [](const process_status& each) { return each.answered; });
    }
    child_process start_and_flow() {
        child_process launched = start("flowing");
        wait_for_processes(1);
        return launched;
    }
};

TEST_F(watched_run, shows_its_processes_graph_and_numbers) {
    child_process launched = start_and_flow();
    run_status run = read_run(launched.pid());
    // An item is counted once its node has done with it, and on a busy machine some answer too
    // late.
    while (!all_have_answered(run) || process_of(run, "G3").report.nodes.at(0).taken == 0)
        run = read_run(launched.pid());
    EXPECT_EQ(run.launcher, launched.pid());
    EXPECT_TRUE(contains(run.command, "flowing")) << run.command;
    EXPECT_GT(run.seconds, 0);
    EXPECT_TRUE(contains(run.graph, "\"middle\"")) << run.graph;
    ASSERT_EQ(run.processes.size(), 3u);
    for (const process_status& each : run.processes) {
        EXPECT_TRUE(each.running && each.answered) << each.label;
        EXPECT_TRUE(contains(each.where, "pid ")) << each.where;
        EXPECT_GT(each.metrics.value("process_threads"), 0) << each.label;
    }
    EXPECT_TRUE(process_of(run, "G2").address.starts_with("shm://"));
    ASSERT_EQ(process_of(run, "G3").report.nodes.size(), 1u);
    EXPECT_EQ(run.report().nodes.size(), 3u);
    EXPECT_GE(run.metrics().value("amalgam_rpc_served_total", {{"process", "G3"}}), 1);
    EXPECT_NE(list_runs(), std::vector<int>{});
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
}

TEST_F(watched_run, tells_the_ults_of_each_process_and_their_stacks) {
    child_process launched = start_and_flow();
    const run_status run = read_run(launched.pid());
    for (const char* label : {"G1", "G2", "G3"}) {
        const ult_report told = read_run_ults(label, launched.pid());
        EXPECT_EQ("pid " + std::to_string(told.process), process_of(run, label).where);
        EXPECT_FALSE(told.ults.empty()) << label;
#if defined(__x86_64__)
        EXPECT_TRUE(std::any_of(told.ults.begin(), told.ults.end(), [](const told_ult& each) {
            return !each.trace.empty();
        })) << label;
#endif
    }
    const error none = error_of([&] { read_run_ults("G4", launched.pid()); });
    EXPECT_TRUE(contains(none.what(), "the run has no process \"G4\"")) << none.what();
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
}

TEST_F(watched_run, a_process_that_does_not_answer_holds_up_nobody) {
    child_process launched = start_and_flow();
    run_status before = read_run(launched.pid());
    while (!all_have_answered(before))
        before = read_run(launched.pid());
    const pid_t stopped = std::stoi(process_of(before, "G2").where.substr(4));
    stop_and_wait(stopped);
    for (int i = 0; i < 3; ++i) {
        run_status now = read_run(launched.pid());
        while (!process_of(now, "G1").answered)  // On a busy machine it is late, too.
            now = read_run(launched.pid());
        EXPECT_FALSE(process_of(now, "G2").answered);
        EXPECT_TRUE(process_of(now, "G2").running);
        EXPECT_EQ(process_of(now, "G2").report.nodes.size(), 1u);  // As it was.
    }
    ::kill(stopped, SIGCONT);
    while (!process_of(read_run(launched.pid()), "G2").answered) {
    }
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
}

TEST_F(watched_run, is_found_until_it_ends) {
    child_process launched = start_and_flow();
    const auto is_listed = [&] {
        const std::vector<int> all = list_runs();
        return std::find(all.begin(), all.end(), launched.pid()) != all.end();
    };
    EXPECT_TRUE(is_listed());
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
    EXPECT_FALSE(is_listed());
    try {
        (void)read_run(launched.pid());
        ADD_FAILURE() << "found";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::not_found);
        EXPECT_TRUE(contains(why.what(), "is no run of this user on this host")) << why.what();
    }
}

/// Once somebody looks.
std::vector<std::size_t> asked_by(detail::run_watch& watch) {
    ::pollfd wanted{watch.wanted(), POLLIN, 0};
    while (::poll(&wanted, 1, -1) != 1) {
    }
    std::vector<std::size_t> asked;
    for (const detail::run_watch::question& each : watch.take_asked())
        asked.push_back(each.which);
    return asked;
}

std::string output_of(std::vector<std::string> argv, int& code) {
    argv.insert(argv.begin(), AMALGAM_TOOL);
    child_process tool = child_process::run(argv);
    std::string output = tool.output();
    code = tool.join();
    return output;
}

TEST_F(watched_run, is_shown_by_stats_and_top_with_its_processes) {
    child_process launched = start_and_flow();
    const std::string pid = std::to_string(launched.pid());
    int code = -1;
    std::string text = output_of({"stats", "--run", pid, "--filter", "_taken_total"}, code);
    EXPECT_EQ(code, 0) << text;
    EXPECT_TRUE(contains(text, "amalgam_flow_node_taken_total{node=\"to\",process=\"G3\"} "))
        << text;
    text = output_of({"stats", "--run", pid, "--prometheus"}, code);
    EXPECT_TRUE(contains(text, "amalgam_rpc_served_total{process=\"G2\"} ")) << text;
    text = output_of({"top", "--run", pid, "--once", "--interval", "0.1"}, code);
    EXPECT_EQ(code, 0) << text;
    for (const std::string& part :
         {"run " + pid + ": ", std::string("bottleneck: "), std::string("\nnodes\n"),
          std::string("middle  G2"), std::string("\nchannels\n")})
        EXPECT_TRUE(contains(text, part)) << part << " in " << text;
    text = output_of({"stats", "--run", "nobody"}, code);
    EXPECT_EQ(code, 2);
    EXPECT_TRUE(contains(text, "\"nobody\" is no process id")) << text;
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
}

/// What an HTTP server at a loopback address answers.
std::string fetch(const std::string& address) {
    ::sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const unique_fd there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(there.get(), reinterpret_cast<const ::sockaddr*>(&where), sizeof where), 0);
    const std::string ask = "GET /metrics HTTP/1.1\r\nHost: " + address + "\r\n\r\n";
    EXPECT_EQ(::send(there.get(), ask.data(), ask.size(), MSG_NOSIGNAL), ::ssize_t(ask.size()));
    std::string text;
    char part[4096];
    for (::ssize_t got = 0; (got = ::recv(there.get(), part, sizeof part, 0)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    return text;
}

TEST_F(watched_run, tells_prometheus_the_numbers_of_all_processes) {
    const std::string said = folder_ + "/said";
    // Its output is read while it runs.
    child_process launched = child_process::run({"sh", "-c",
                                                 "exec " + shell_word(AMALGAM_TOOL) + " run -c " +
                                                     folder_ + "/c.json --metrics 127.0.0.1:0 -- " +
                                                     shell_word(FLOW_TEST_PROGRAM) + " flowing " +
                                                     folder_ + "/fifo 2>" + said});
    wait_for_processes(1);
    const std::string front = "numbers at http://", end = "/metrics\n";
    std::string line;
    while (!line.ends_with(end)) {
        std::ifstream file(said);
        line.assign(std::istreambuf_iterator<char>(file), {});
    }
    const std::size_t from = line.find(front) + front.size();
    const std::string text = fetch(line.substr(from, line.size() - end.size() - from));
    for (const char* each : {"G1", "G2", "G3"})
        EXPECT_TRUE(contains(text, std::string("process_threads{process=\"") + each + "\"} "))
            << text;
    EXPECT_TRUE(contains(text,
                         "amalgam_flow_channel_items_total{from=\"middle\",process=\"G2\",to="
                         "\"to\"} "))
        << text;
    launched.signal(SIGTERM);
    launched.output();
    launched.join();
}

TEST_F(launcher, an_address_for_numbers_that_others_reach_or_that_is_none_is_refused) {
    for (const auto& [address, sentence] : {std::pair("0.0.0.0:0", "other hosts can reach"),
                                            std::pair("here", "is no address to listen at")}) {
        const auto [code, output] = run({"count"}, {"--metrics", address});
        EXPECT_EQ(code, 2) << output;
        EXPECT_TRUE(contains(output, "amalgam: --metrics: ") && contains(output, sentence))
            << output;
    }
}

TEST(run_watch, a_look_waits_for_those_that_take_part_and_no_others) {
    detail::run_watch watch("program");
    for (const char* label : {"G1", "G2", "G3"})
        watch.add(label, "pid 1");
    watch.is_ready(0, "shm://a", true);
    watch.is_ready(1, "shm://b", false);  // Of an older version.
    detail::control_message report;
    report.what = detail::control_message::kind::report;
    run_report one_node;
    one_node.nodes.emplace_back().taken = 7;
    report.report = one_node.json();
    report.answers_queries = true;
    run_status seen;
    std::thread query([&] { seen = watch.query(std::chrono::hours(1)); });
    EXPECT_EQ(asked_by(watch), std::vector<std::size_t>{0});
    EXPECT_FALSE(watch.take(0, report).has_value());
    query.join();
    EXPECT_TRUE(seen.processes.at(0).answered);
    EXPECT_FALSE(seen.processes.at(1).answered);
    EXPECT_EQ(seen.report().nodes.at(0).taken, 7u);

    // One at a time: who looks meanwhile has it asked again.
    std::thread again([&] { seen = watch.query(std::chrono::hours(1)); });
    EXPECT_EQ(asked_by(watch).size(), 1u);
    std::thread third([&] { (void)watch.query(std::chrono::hours(1)); });
    EXPECT_TRUE(asked_by(watch).empty());
    EXPECT_TRUE(watch.take(0, report).has_value());
    EXPECT_FALSE(watch.take(0, report).has_value());
    again.join();
    third.join();

    // The end of a process is an answer, too.
    std::thread last([&] { seen = watch.query(std::chrono::hours(1)); });
    EXPECT_EQ(asked_by(watch).size(), 1u);
    watch.has_ended(0);
    last.join();
    EXPECT_FALSE(seen.processes.at(0).running);
}

TEST(run_watch, asks_for_the_ults_of_one_process_when_somebody_wants_them) {
    detail::run_watch watch("program");
    for (const char* label : {"G1", "G2", "G3"})
        watch.add(label, "pid 1");
    watch.is_ready(0, "shm://a", true);
    watch.is_ready(1, "shm://b", true);
    EXPECT_EQ(watch.ask_ults("G4").code(), errc::not_found);
    EXPECT_EQ(watch.ask_ults("G3").code(), errc::closed);  // It has not begun.
    EXPECT_TRUE(watch.ask_ults("G2"));
    const auto first = watch.take_asked();
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].which, 1u);
    EXPECT_TRUE(first[0].ults);

    // It is asked once more, by who wants them while it answers.
    result<ult_report> told{errc::timed_out, {}};
    std::thread wants([&] { told = watch.query_ults("G2", std::chrono::hours(1)); });
    std::uint64_t times = 0;
    ::pollfd woken{watch.wanted(), POLLIN, 0};
    ::poll(&woken, 1, -1);
    EXPECT_EQ(::read(watch.wanted(), &times, sizeof times), 8);
    detail::control_message report;
    report.what = detail::control_message::kind::report;
    report.answers_queries = true;
    const auto again = watch.take(1, report);  // Of a version that tells none.
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(again->ults);
    report.ults = detail::encode_ults({.process = 7, .host = "here", .ults = {}});
    EXPECT_FALSE(watch.take(1, report).has_value());
    wants.join();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->process, 7);

    EXPECT_EQ(watch.query_ults("G2", std::chrono::milliseconds(1)).code(), errc::timed_out);
    watch.has_ended(1);
    EXPECT_EQ(watch.query_ults("G2", std::chrono::hours(1)).code(), errc::closed);
}

TEST(run_status, ults_travel_whole_or_are_refused) {
    ult_report all{.process = 7, .host = "here", .ults = {}, .left_out = 3};
    all.ults.push_back({.id = 1, .name = "teller", .waits_for = "mutex", .trace = {"f()"}});
    EXPECT_EQ(detail::decode_ults(detail::encode_ults(all))->ults.at(0).trace.at(0), "f()");
    EXPECT_FALSE(detail::decode_ults("").has_value());
    const std::string bytes = detail::encode_told_ults(all);
    EXPECT_EQ(detail::decode_told_ults(bytes)->ults.at(0).name, "teller");
    for (std::size_t i = 0; i < bytes.size(); ++i)
        EXPECT_FALSE(detail::decode_told_ults(bytes.substr(0, i))) << i;
    const auto refused =
        detail::decode_told_ults(detail::encode_told_ults(failure{{errc::closed}, "G2 has ended"}));
    EXPECT_EQ(refused.sentence(), "G2 has ended");
    EXPECT_EQ(detail::process_in_question(detail::ults_question("G2.1")), "G2.1");
    EXPECT_EQ(detail::process_in_question(detail::status_question), std::nullopt);
}

TEST(run_status, bytes_of_others_are_refused_with_a_sentence) {
    EXPECT_EQ(detail::decode_status("HTTP/1.1 200 OK").code(), errc::invalid);
    run_status some{
        .launcher = 7, .command = "a b", .seconds = 1.5, .graph = "{}", .processes = {}};
    some.processes.push_back(
        {.label = "G1", .where = "pid 1", .address = "shm://", .report = {}, .metrics = {}});
    const std::string bytes = detail::encode_status(some);
    EXPECT_EQ(detail::decode_status(bytes)->processes.at(0).label, "G1");
    for (std::size_t i = 0; i < bytes.size(); ++i)
        EXPECT_FALSE(detail::decode_status(bytes.substr(0, i))) << i;
}

TEST(run_status, numbers_travel_as_text) {
    metric_writer into;
    into.add({"calls_total", "Calls.", metric_kind::counter}, {{"procedure", "sum"}}, 3);
    const metric_snapshot all = into.take();
    const std::string text = detail::encode_metrics(all);
    EXPECT_EQ(detail::decode_metrics(text), all);
    for (const std::string& wrong : {std::string("0"), std::string("zz"), text + "00"})
        EXPECT_EQ(detail::decode_metrics(wrong), std::nullopt) << wrong;
}

TEST(run_socket, answers_each_that_asks_and_ends_with_those_that_only_connect) {
    const int launcher = 2'000'000'000 + ::getpid();  // No process has this id.
    const std::string name = detail::status_socket_name(::geteuid(), launcher);
    EXPECT_EQ(detail::launcher_of(name, ::geteuid()), launcher);
    EXPECT_EQ(detail::launcher_of(name, ::geteuid() + 1), 0);
    EXPECT_EQ(detail::launcher_of(name + "x", ::geteuid()), 0);
    const auto connect = [&] {
        unique_fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ::sockaddr_un where{};
        const ::socklen_t size = detail::abstract_address(name, where);
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const ::sockaddr*>(&where), size), 0);
        return socket;
    };
    const detail::run_socket here(name, [](std::string_view) { return std::string("hello"); });
    connect();
    const unique_fd asks = connect();
    EXPECT_TRUE(detail::is_of_this_user(asks.get()));
    EXPECT_EQ(::send(asks.get(), "?", 1, MSG_NOSIGNAL), 1);
    char text[6] = {};
    EXPECT_EQ(::recv(asks.get(), text, 5, MSG_WAITALL), 5);
    EXPECT_STREQ(text, "hello");
    const detail::run_socket second(
        name, [](std::string_view) { return std::string("taken"); });  // Answers nobody.
}

class run_socket_crowd : public testing::Test {
protected:
    unique_fd connect() const {
        unique_fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ::sockaddr_un where{};
        const ::socklen_t size = detail::abstract_address(name, where);
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const ::sockaddr*>(&where), size), 0);
        return socket;
    }
    // No process has this id, and no other test that runs meanwhile has its name.
    const int launcher = 2'000'000'000 + ::getpid();
    const std::string name = detail::status_socket_name(::geteuid(), launcher);
    std::string status() const {
        return detail::encode_status({.launcher = launcher,
                                      .command = "crowded",
                                      .seconds = 1,
                                      .graph = {},
                                      .processes = {}});
    }
};

TEST_F(run_socket_crowd, those_that_ask_nothing_keep_nobody_away) {
    const detail::run_socket here(name, [this](std::string_view) { return status(); });
    std::vector<unique_fd> silent;
    for (std::size_t i = 0; i < 3 * detail::run_socket::most_silent; ++i)
        silent.push_back(connect());
    EXPECT_EQ(read_run(launcher, std::chrono::hours(1)).command, "crowded");
    // The oldest made room; it did not wait for the newest.
    char none = 0;
    EXPECT_EQ(::recv(silent.front().get(), &none, 1, 0), 0);
    EXPECT_EQ(::recv(silent.back().get(), &none, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(run_socket_crowd, a_run_that_answers_others_first_is_waited_for) {
    std::atomic<bool> answers = false, goes_on = false;
    const detail::run_socket here(name, [&](std::string_view) {
        answers = true;
        while (!goes_on)
            std::this_thread::yield();
        return status();
    });
    // One is being answered, and as many wait as may.
    std::vector<unique_fd> waiting;
    waiting.push_back(connect());
    EXPECT_EQ(::send(waiting[0].get(), "?", 1, MSG_NOSIGNAL), 1);
    while (!answers)
        std::this_thread::yield();
    for (bool full = false; !full;) {
        unique_fd next(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        ::sockaddr_un where{};
        const ::socklen_t size = detail::abstract_address(name, where);
        full = ::connect(next.get(), reinterpret_cast<const ::sockaddr*>(&where), size) != 0 &&
               errno == EAGAIN;
        waiting.push_back(std::move(next));
    }
    std::thread asks(
        [this] { EXPECT_EQ(read_run(launcher, std::chrono::hours(1)).command, "crowded"); });
    try {
        (void)read_run(launcher, std::chrono::milliseconds(20));
        ADD_FAILURE() << "answered";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::timed_out) << why.what();
    }
    goes_on = true;
    asks.join();
}

}  // namespace
}  // namespace amalgam
