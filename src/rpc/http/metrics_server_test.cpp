#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/metrics_server.hpp>

#include "conformance/slow_build.hpp"
#include "contains.hpp"
#include "http_client.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using detail::http_listener;

struct outcome {
    int code;
    std::string output;
};

outcome run(const std::string& command) {
    std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return {-1, "could not start " + command};
    outcome ran{0, {}};
    char part[4096];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
        ran.output.append(part, n);
    const int ended = ::pclose(pipe);
    ran.code = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return ran;
}

std::string get(const std::string& address, const std::string& path,
                const std::string& fields = {}) {
    return ask(address, "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n" + fields + "\r\n");
}

std::string body_of(const std::string& answer) {
    return answer.substr(std::min(answer.find("\r\n\r\n") + 4, answer.size()));
}

struct served {
    engine here{"shm://"};
    metrics_server server{here, "127.0.0.1:0"};

    served() {
        here.define("sum", [](int a, int b) { return a + b; });
    }
};

TEST(metrics_server, tells_what_a_function_reads) {
    const metrics_server server(
        [] {
            metric_writer all;
            all.add({"open", "Whether it is open."}, {}, 1);
            return all.take();
        },
        "127.0.0.1:0");
    EXPECT_TRUE(contains(get(server.address(), "/metrics"), "\nopen 1\n"));
    for (const char* path : {"/health", "/ready"})
        EXPECT_TRUE(get(server.address(), path).starts_with("HTTP/1.1 200 OK")) << path;
    EXPECT_TRUE(get(server.address(), "/else").starts_with("HTTP/1.1 404"));
}

TEST(metrics_server, answers_what_the_function_throws_and_goes_on) {
    int asked = 0;
    const metrics_server server(
        [&asked]() -> metric_snapshot {
            if (++asked == 1) throw 5;
            throw error(errc::unavailable, "the numbers are at lunch");
        },
        "127.0.0.1:0");
    const std::string odd = get(server.address(), "/metrics");
    EXPECT_TRUE(odd.starts_with("HTTP/1.1 500") && contains(odd, "threw an exception")) << odd;
    const std::string told = get(server.address(), "/metrics");
    EXPECT_TRUE(told.starts_with("HTTP/1.1 500") && contains(told, "the numbers are at lunch"))
        << told;
}

/// AMALGAM_METRICS while this lives.
struct metrics_variable {
    explicit metrics_variable(const char* to) { ::setenv("AMALGAM_METRICS", to, 1); }
    ~metrics_variable() { ::unsetenv("AMALGAM_METRICS"); }
};

TEST(metrics_variable, an_address_that_is_none_or_that_others_reach_is_refused) {
    for (const auto& [address, code] :
         {std::pair("here", errc::invalid), std::pair("0.0.0.0:9464", errc::denied)}) {
        const metrics_variable set(address);
        const error why = error_of([] { const engine one("shm://"); });
        EXPECT_EQ(why.code(), code) << address;
        EXPECT_TRUE(contains(why.what(), "AMALGAM_METRICS is wrong: ")) << why.what();
    }
}

/// Where this process shows its numbers. The first engine says so, once and for all.
std::string address_of_process() {
    static const std::string address = [] {
        testing::internal::CaptureStderr();
        const engine first("shm://");
        const std::string said = testing::internal::GetCapturedStderr();
        const std::string front = "amalgam: numbers at http://", end = "/metrics\n";
        EXPECT_TRUE(said.starts_with(front) && said.ends_with(end)) << said;
        return said.substr(std::min(front.size(), said.size()),
                           said.size() - std::min(front.size() + end.size(), said.size()));
    }();
    return address;
}

TEST(metrics_variable, shows_all_engines_of_the_process_by_name) {
    const metrics_variable set("127.0.0.1:0");
    const std::string address = address_of_process();
    const engine one("shm://", {.name = "one"});
    auto two = std::make_unique<engine>("shm://", engine_options{.name = "two"});
    std::string text = get(address, "/metrics");
    EXPECT_TRUE(contains(text, "amalgam_rpc_served_total{engine=\"one\"} ")) << text;
    EXPECT_TRUE(contains(text, "amalgam_rpc_served_total{engine=\"two\"} ")) << text;
    {
        const engine same("shm://", {.name = "one"}), again("shm://", {.name = "one"});
        text = get(address, "/metrics");
        for (const char* each : {"{engine=\"one\"} ", "{engine=\"one 2\"} ", "{engine=\"one 3\"} "})
            EXPECT_TRUE(contains(text, std::string("amalgam_rpc_served_total") + each)) << text;
    }
    two.reset();
    text = get(address, "/metrics");
    EXPECT_FALSE(contains(text, "{engine=\"one 2\"}"));
    EXPECT_TRUE(contains(text, "{engine=\"one\"}"));
    EXPECT_FALSE(contains(text, "{engine=\"two\"}"));
}

TEST(metrics_variable, a_child_of_fork_has_engines_while_its_parent_is_read) {
    if (conformance::slow_build)
        GTEST_SKIP() << "sanitizers allow no threads after a fork() with several";
    const metrics_variable set("127.0.0.1:0");
    const std::string address = address_of_process();
    const engine one("shm://", {.name = "one"});
    std::atomic<bool> ends = false;
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i)
        readers.emplace_back([&] {
            while (!ends)
                get(address, "/metrics");
        });
    for (int i = 0; i < 200; ++i) {
        const ::pid_t child = ::fork();
        if (child == 0) {
            ::close(STDERR_FILENO);
            const engine own("shm://", {.name = "own"});
            ::_exit(0);
        }
        int how = -1;
        ASSERT_EQ(::waitpid(child, &how, 0), child);
        EXPECT_EQ(how, 0);
    }
    ends = true;
    for (std::thread& each : readers)
        each.join();
    EXPECT_TRUE(contains(get(address, "/metrics"), "{engine=\"one\"}"));
}

TEST(metrics_server, answers_for_prometheus_and_as_openmetrics_if_asked) {
    served one;
    const std::string text = get(one.server.address(), "/metrics?x=1");
    EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n")) << text;
    EXPECT_TRUE(contains(text, "Content-Type: text/plain; version=0.0.4")) << text;
    const std::string line = "amalgam_rpc_handled_total{procedure=\"sum\",provider=\"0\"} 0\n";
    EXPECT_TRUE(contains(text, "# TYPE amalgam_rpc_handled_total counter\n" + line)) << text;
    const std::string open = get(one.server.address(), "/metrics",
                                 "accept: text/plain;q=0.1, application/openmetrics-text\r\n");
    EXPECT_TRUE(contains(open, "Content-Type: application/openmetrics-text; version=1.0.0"))
        << open;
    EXPECT_TRUE(contains(open, "# TYPE amalgam_rpc_handled counter\n")) << open;
    EXPECT_TRUE(contains(open, line)) << open;
    EXPECT_TRUE(contains(open, "# UNIT process_resident_memory_bytes bytes\n")) << open;
    EXPECT_TRUE(open.ends_with("# EOF\n")) << open;
}

TEST(metrics_server, tells_health_and_readiness) {
    served one;
    EXPECT_TRUE(get(one.server.address(), "/health").starts_with("HTTP/1.1 200 "));
    EXPECT_TRUE(get(one.server.address(), "/ready").starts_with("HTTP/1.1 200 "));
    set_health(one.here, false, "loading the index");
    EXPECT_TRUE(get(one.server.address(), "/health").starts_with("HTTP/1.1 200 "));
    const std::string ready = get(one.server.address(), "/ready");
    EXPECT_TRUE(ready.starts_with("HTTP/1.1 503 ")) << ready;
    EXPECT_EQ(body_of(ready), "loading the index\n");
    one.here.stop();
    EXPECT_TRUE(get(one.server.address(), "/health").starts_with("HTTP/1.1 503 "));
    EXPECT_TRUE(contains(get(one.server.address(), "/metrics"), "amalgam_rpc_served_total 0\n"));
}

TEST(metrics_server, what_is_no_get_for_this_host_is_refused) {
    served one;
    const std::string& there = one.server.address();
    EXPECT_TRUE(get(there, "/").starts_with("HTTP/1.1 404 "));
    EXPECT_TRUE(ask(there, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    EXPECT_TRUE(ask(there, "hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
    const std::string page = ask(there, "GET /metrics HTTP/1.1\r\nHost: page.example:80\r\n\r\n");
    EXPECT_TRUE(page.starts_with("HTTP/1.1 403 ")) << page;
    EXPECT_TRUE(get(there, "/metrics", "Host: localhost:1\r\n").starts_with("HTTP/1.1 200 "));
    for (const char* ours : {"[::1]", "[::1]:80", "LOCALHOST", "127.1.2.3:9464", "localhost:"})
        EXPECT_TRUE(get(there, "/metrics", std::string("Host: ") + ours + "\r\n")
                        .starts_with("HTTP/1.1 200 "))
            << ours;
    for (const char* other : {"[::1].page.example", "[::1", "[::2]", "localhost:80@page.example",
                              "localhost.page.example", "127.0.0.1.page.example:80", ":80"})
        EXPECT_TRUE(get(there, "/metrics", std::string("Host: ") + other + "\r\n")
                        .starts_with("HTTP/1.1 403 "))
            << other;
    EXPECT_EQ(body_of(ask(there, "HEAD /health HTTP/1.1\r\n\r\n")), "");
    const std::string above = get(there, "/metrics", "X: " + std::string(9'000, 'x') + "\r\n");
    EXPECT_TRUE(above.starts_with("HTTP/1.1 431 ")) << above;
    const std::string large = get(there, "/metrics", "X: " + std::string(100'000, 'x') + "\r\n");
    // The rest of the request was not read: its answer may be lost.
    EXPECT_TRUE(large.empty() || large.starts_with("HTTP/1.1 431 ")) << large;
    EXPECT_TRUE(get(there, "/health").starts_with("HTTP/1.1 200 "));
}

TEST(metrics_server, who_connects_without_end_and_asks_nothing_keeps_nobody_away) {
    served one;
    std::vector<unique_fd> silent;
    for (std::size_t i = 0; i < 4 * http_listener::most_connections; ++i) {
        silent.push_back(connect_to(one.server.address()));
        say(silent.back(), "GET /metrics HT");
        if (i % 16 == 0) {
            EXPECT_TRUE(get(one.server.address(), "/health").starts_with("HTTP/1.1 200 "));
        }
    }
    // The oldest ones made room.
    EXPECT_EQ(all_of(silent.front()), "");
}

TEST(metrics_server, who_comes_takes_the_place_of_one) {
    const metrics_server server([] { return metric_snapshot(); }, "127.0.0.1:0");
    std::vector<unique_fd> silent;
    for (std::size_t i = 0; i < http_listener::most_connections; ++i)
        silent.push_back(connect_to(server.address()));
    EXPECT_TRUE(get(server.address(), "/metrics").starts_with("HTTP/1.1 200 "));
    EXPECT_EQ(all_of(silent[0]), "");
    char nothing;
    EXPECT_EQ(::recv(silent[1].get(), &nothing, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(metrics_server, slow_readers_of_much_are_bounded_and_others_are_answered) {
    const std::size_t bytes = http_listener::most_unsent_bytes / 2;
    std::atomic<std::size_t> made = 0;
    const http_listener listener("127.0.0.1:0", [&](const detail::http_request& asked) {
        ++made;
        return detail::http_answer{.body = std::string(asked.path == "/much" ? bytes : 3, 'x')};
    });
    std::vector<unique_fd> slow;
    for (int i = 0; i < 8; ++i) {
        slow.push_back(connect_to(listener.address()));
        say(slow.back(), "GET /much HTTP/1.1\r\n\r\n");
        char first[16];
        ASSERT_GT(::recv(slow.back().get(), first, sizeof first, MSG_WAITALL), 0);
    }
    EXPECT_LE(made, 3u);
    const std::string busy = get(listener.address(), "/little");
    EXPECT_TRUE(busy.starts_with("HTTP/1.1 503 ")) << busy;
    slow.clear();
    std::string after;
    do
        after = get(listener.address(), "/little");
    while (after.starts_with("HTTP/1.1 503 "));  // Until it has seen that they are gone.
    EXPECT_EQ(body_of(after), "xxx");
}

TEST(metrics_server, listens_on_loopback_only_and_says_why) {
    engine here("shm://");
    const auto refused = [&](const char* address) {
        return error_of([&] { metrics_server no(here, address); });
    };
    for (const char* each : {"0.0.0.0:0", "[::]:0", "10.0.0.1:9464"}) {
        const error why = refused(each);
        EXPECT_EQ(why.code(), errc::denied) << each;
        EXPECT_TRUE(contains(why.what(), "expected a loopback address")) << why.what();
    }
    for (const char* each : {"", "9464", "127.0.0.1:", "127.0.0.1:70000", "host:1", "[::1:9"})
        EXPECT_EQ(refused(each).code(), errc::invalid) << each;
    const metrics_server first(here, "127.0.0.1:0");
    EXPECT_EQ(refused(first.address().c_str()).code(), errc::in_use);
}

TEST(metrics_server, promtool_finds_no_fault) {
    if (std::system("command -v promtool >/dev/null") != 0)
        GTEST_SKIP() << "promtool is not installed";
    served one;
    const temp_folder folder;
    std::ofstream(folder.with("metrics")) << body_of(get(one.server.address(), "/metrics"));
    const auto checked = run("promtool check metrics <" + folder.with("metrics"));
    EXPECT_EQ(checked.code, 0) << checked.output;
    EXPECT_EQ(checked.output, "");
}

TEST(metrics_server, a_real_prometheus_scrapes_it) {
    served one;
    const temp_folder folder;
    const auto scraped = run(shell_word(AMALGAM_CHECK_PROMETHEUS) + " " + folder.path() + " " +
                             one.server.address());
    if (scraped.code == 77) GTEST_SKIP() << scraped.output;
    EXPECT_EQ(scraped.code, 0) << scraped.output;
    EXPECT_GT(std::atoi(scraped.output.c_str()), 40) << scraped.output;
}

}  // namespace
}  // namespace amalgam
