#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/live_page.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

#include "contains.hpp"
#include "flow/web/page_files.hpp"
#include "http_client.hpp"
#include "temp_folder.hpp"
#include "thrown.hpp"

namespace amalgam::detail {
namespace {

struct page_of_a_run : testing::Test {
    live_page page{"127.0.0.1:0",
                   {.title = "./count <text>", .can_stop = true, .tells_ults = true}};
    const std::string url = page.url();
    const std::string host = url.substr(7, url.find('/', 7) - 7);
    const std::string token = url.substr(url.find('=') + 1);

    page_of_a_run() { page.start(); }

    std::string ask(const std::string& request) const { return amalgam::ask(host, request); }
    std::string request(const std::string& what, const std::string& fields = {}) const {
        return what + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n";
    }
    std::string get(const std::string& path) const { return ask(request("GET " + path)); }
    unique_fd open_events() const {
        unique_fd made = connect_to(host);
        say(made, request("GET /events?token=" + token));
        return made;
    }

    /// Reads until the text read so far has `part`.
    static std::string read_until(const unique_fd& from, std::string_view part) {
        std::string text;
        std::vector<char> piece(1 << 16);
        for (std::size_t looked = 0; text.find(part, looked) == text.npos;) {
            looked = text.size() - std::min(text.size(), part.size());
            const ssize_t got = ::recv(from.get(), piece.data(), piece.size(), 0);
            if (got <= 0) return text + "<the end>";
            text.append(piece.data(), static_cast<std::size_t>(got));
        }
        return text;
    }
    /// The first state to come that contains `part`.
    static nlohmann::json state_with(const unique_fd& from, std::string_view part) {
        std::string text;
        char piece[4096];
        for (;;) {
            const std::size_t at = text.find(part);
            const std::size_t end = at == text.npos ? at : text.find("\n\n", at);
            if (end != text.npos) {
                const std::size_t start = text.rfind("data: ", at) + 6;
                return nlohmann::json::parse(text.substr(start, end - start));
            }
            const ssize_t got = ::recv(from.get(), piece, sizeof piece, 0);
            if (got <= 0) return {};
            text.append(piece, static_cast<std::size_t>(got));
        }
    }
    static run_report report(std::size_t nodes) {
        run_report all;
        node_report node;
        node.process = "G";
        node.taken = 1000;
        node.seconds = 2;
        node.waited_for_input = 1;
        for (std::size_t i = 0; i < nodes; ++i) {
            node.name = "node" + std::to_string(i);
            all.nodes.push_back(node);
        }
        channel_report channel;
        channel.from = "node0";
        channel.to = "node1";
        channel.items = 10;
        all.channels.push_back(channel);
        all.processes.push_back({"G", 2, 1.5, 4096, 2});
        return all;
    }
    bool something_was_asked() const {
        ::pollfd looked{page.requests_fd(), POLLIN, 0};
        return ::poll(&looked, 1, 0) == 1;
    }
    void show(run_report so_far, const std::string& state = "running",
              const std::string& sentence = {}, std::vector<page_process> processes = {}) {
        page.show({state, sentence, std::move(so_far), std::move(processes), {}});
    }
    std::string right() const {
        return "X-Amalgam-Token: " + token + "\r\nOrigin: http://" + host + "\r\n";
    }
};

TEST_F(page_of_a_run, is_for_who_has_its_token) {
    const std::string shown = get("/?token=" + token);
    EXPECT_TRUE(shown.starts_with("HTTP/1.1 200 ")) << shown;
    EXPECT_TRUE(contains(shown, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
    for (const char* path : {"/", "/?token=", "/?token=0", "/events", "/events?token=1"}) {
        const std::string refused = get(path);
        EXPECT_TRUE(refused.starts_with("HTTP/1.1 403 ")) << path << refused;
        EXPECT_TRUE(contains(refused, "open the address that amalgam has printed")) << refused;
        EXPECT_FALSE(contains(refused, "<!doctype")) << path;
    }
    EXPECT_TRUE(get("/page.js").starts_with("HTTP/1.1 200 "));
    EXPECT_TRUE(get("/other").starts_with("HTTP/1.1 404 "));
    EXPECT_NE(live_page("127.0.0.1:0", {.title = "other"}).url().substr(url.find('=')),
              url.substr(url.find('=')));
}

TEST_F(page_of_a_run, is_not_for_a_page_whose_name_leads_here) {
    const std::string refused =
        ask("GET /?token=" + token + " HTTP/1.1\r\nHost: page.example\r\n\r\n");
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 403 ")) << refused;
}

TEST_F(page_of_a_run, needs_no_byte_from_elsewhere) {
    for (const char* path : {"/page.html", "/page.css", "/page.js", "/graph.js", "/curves.js",
                             "/tables.js", "/ults.js"}) {
        const page_file* const file = find_page_file(path);
        ASSERT_NE(file, nullptr) << path;
        std::string text(file->text);
        // The name of SVG, which nobody looks up.
        const std::string_view svg = "http://www.w3.org/2000/svg";
        if (const auto at = text.find(svg); at != text.npos) text.erase(at, svg.size());
        EXPECT_FALSE(contains(text, "://")) << path;
        EXPECT_FALSE(contains(text, "innerHTML")) << path;
    }
}

TEST_F(page_of_a_run, sends_what_was_and_then_each_state) {
    page.log("[G] one <line>\x1b[1m");
    show(report(2), "running", "", {{"G", "pid 7", "running", true}});
    const unique_fd browser = open_events();
    const std::string first = read_until(browser, "event: state");
    EXPECT_TRUE(contains(first, "Content-Type: text/event-stream")) << first;
    EXPECT_TRUE(contains(first, "event: history\ndata: [[")) << first;
    EXPECT_TRUE(contains(first, R"(event: log
data: ["[G] one <line>\\x1b[1m"])"))
        << first;

    run_report later = report(2);
    later.nodes[0].taken += 500;
    later.nodes[0].seconds += 1;
    later.processes[0] = {"G", 3, 2, 8192, 2};
    show(later, "ended", "that was all", {{"G", "pid 7", "ended with exit code 0", false}});
    const nlohmann::json state = state_with(browser, "that was all");
    EXPECT_EQ(state["command"], "./count <text>");
    EXPECT_EQ(state["nodes"][0]["taken"], 1500);
    EXPECT_EQ(state["nodes"][0]["taken_rate"], 500);
    EXPECT_EQ(state["processes"][0]["state"], "ended with exit code 0");
    EXPECT_EQ(state["bottleneck"]["node"], "node0");
    EXPECT_EQ(state["bottleneck"]["cause"], "work");
}

TEST_F(page_of_a_run, is_stopped_only_by_its_own_button) {
    const std::string elsewhere =
        "X-Amalgam-Token: " + token + "\r\nOrigin: http://page.example\r\n";
    const std::string unknown = "X-Amalgam-Token: 0\r\nOrigin: http://" + host + "\r\n";
    for (const std::string& refused :
         {ask(request("POST /stop")), ask(request("POST /stop", elsewhere)),
          ask(request("POST /stop", unknown)), ask(request("GET /stop", right())),
          ask(request("POST /stop?token=" + token)),
          ask(request("POST /stop", "X-Amalgam-Token: " + token + "\r\n")),
          ask(request("POST /events", right())), ask(request("PUT /stop", right()))}) {
        EXPECT_TRUE(refused.starts_with("HTTP/1.1 40")) << refused;
    }
    EXPECT_FALSE(something_was_asked());
    const std::string taken = ask(request("POST /stop", right() + "Content-Length: 0\r\n"));
    EXPECT_TRUE(taken.starts_with("HTTP/1.1 200 ")) << taken;
    EXPECT_TRUE(something_was_asked());
    const auto asked = page.take_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].what, page_request::kind::stop);
    EXPECT_FALSE(something_was_asked());
}

TEST_F(page_of_a_run, has_only_the_buttons_that_it_was_given) {
    live_page other("127.0.0.1:0", {.title = "top"});
    other.start();
    const std::string at = other.url().substr(7, other.url().find('/', 7) - 7);
    const std::string its = other.url().substr(other.url().find('=') + 1);
    for (const char* path : {"/stop", "/checkpoint", "/ults?process=G1"}) {
        const std::string answer = amalgam::ask(
            at, std::string("POST ") + path + " HTTP/1.1\r\nHost: " + at +
                    "\r\nX-Amalgam-Token: " + its + "\r\nOrigin: http://" + at + "\r\n\r\n");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 404 ")) << answer;
    }
}

TEST_F(page_of_a_run, asks_for_the_ults_of_a_process_and_shows_what_comes) {
    EXPECT_TRUE(ask(request("POST /ults?process=G1")).starts_with("HTTP/1.1 403 "));
    for (const char* none : {"", "?", "?process=", "?process=%", "?process=%2", "?process=%zz"})
        EXPECT_TRUE(
            ask(request(std::string("POST /ults") + none, right())).starts_with("HTTP/1.1 400 "))
            << none;
    EXPECT_FALSE(something_was_asked());
    const unique_fd browser = open_events();
    show(report(1));
    read_until(browser, "event: state");
    const std::string taken =
        ask(request("POST /ults?process=tcp%3A%2f%2fh%3A1", right() + "Content-Length: 0\r\n"));
    EXPECT_TRUE(taken.starts_with("HTTP/1.1 200 ")) << taken;
    const auto asked = page.take_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].what, page_request::kind::ults);
    EXPECT_EQ(asked[0].process, "tcp://h:1");

    ult_report told;
    told.process = 4711;
    told.ults.push_back({.id = 0x1234567890,
                         .name = "teller<b>",
                         .state = ult_state::parked,
                         .waits_for = "mutex",
                         .waited = std::chrono::seconds(3),
                         .unit = 7,
                         .stream = "worker",
                         .trace = {"f() (a+0x1)", "g()"}});
    page.tell_ults("tcp://h:1", told);
    const nlohmann::json shown = state_with(browser, "teller<b>");
    EXPECT_EQ(shown["process"], "tcp://h:1");
    EXPECT_EQ(shown["pid"], 4711);
    EXPECT_EQ(shown["ults"][0]["id"], "34567890");
    EXPECT_EQ(shown["ults"][0]["waited"], 3);
    EXPECT_EQ(shown["ults"][0]["unit"], "00000007");
    EXPECT_EQ(shown["ults"][0]["trace"][1], "g()");
    page.tell_ults("G1", failure{{errc::closed}, "G1 has ended"});
    EXPECT_EQ(state_with(browser, "has ended")["why"], "G1 has ended");
    // Who comes later has not asked.
    const unique_fd later = open_events();
    EXPECT_FALSE(contains(read_until(later, "event: state"), "teller"));
}

TEST_F(page_of_a_run, takes_so_many_questions_and_refuses_more) {
    for (std::size_t i = 0; i < live_page::most_requests; ++i)
        EXPECT_TRUE(ask(request("POST /ults?process=G1", right())).starts_with("HTTP/1.1 200 "));
    const std::string refused = ask(request("POST /ults?process=G1", right()));
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
    EXPECT_EQ(page.take_requests().size(), live_page::most_requests);
    EXPECT_TRUE(ask(request("POST /ults?process=G1", right())).starts_with("HTTP/1.1 200 "));
}

TEST_F(page_of_a_run, shows_tables_and_processes_without_a_graph) {
    page_table table{"procedures", {"procedure", "calls/s"}, 1, {}};
    for (std::size_t i = 0; i < live_page::most_rows + 5; ++i)
        table.rows.push_back({{"sum\x1b", 0}, {"3k", 3000}});
    page.show({.processes = {{"tcp://h:1", "", "running", true, 1.5, 4096}}, .tables = {table}});
    const unique_fd browser = open_events();
    const nlohmann::json state = state_with(browser, "procedures");
    EXPECT_EQ(state["has_graph"], false);
    EXPECT_EQ(state["tables"][0]["rows"].size(), live_page::most_rows);
    EXPECT_EQ(state["tables"][0]["rows"][0][0], "sum\\x1b");
    EXPECT_EQ(state["tables"][0]["more"], 5);
    EXPECT_EQ(state["processes"][0]["processor"], 1.5);
    EXPECT_EQ(state["point"][4], 1.5);
}

TEST_F(page_of_a_run, a_later_one_at_its_address_has_its_token_if_a_file_keeps_it) {
    const temp_folder folder;
    const std::string address = "127.0.0.1:0?token=" + folder.with("page");
    std::string first;
    {
        const live_page one(address, {.title = "one"});
        first = one.url().substr(one.url().find('='));
    }
    const live_page two(address, {.title = "two"});
    EXPECT_EQ(two.url().substr(two.url().find('=')), first);
}

TEST_F(page_of_a_run, a_browser_that_does_not_read_misses_states_and_costs_no_memory) {
    const unique_fd slow = open_events();
    run_report much = report(live_page::most_nodes);
    for (node_report& each : much.nodes)
        each.name.append(2'000, 'n');  // 0.8 MB a state: the kernel holds a few.
    constexpr std::size_t states = 40;
    for (std::size_t i = 0; i <= states; ++i) {
        show(much, "running", i == states ? "the newest" : "");
        page.log(std::string(10'000, 'x'));
        if (i % 10 != 0) continue;
        const unique_fd other = open_events();
        read_until(other, "event: state");
    }
    // On a machine so slow that this took longer than a browser may take, it is let go.
    const std::string got = read_until(slow, "the newest");
    std::size_t events = 0;
    for (std::size_t at = 0; (at = got.find("event: state", at)) != got.npos; ++at)
        ++events;
    EXPECT_GT(events, 0u);
    EXPECT_LT(events, states / 2) << got.size();
}

TEST_F(page_of_a_run, refuses_one_browser_too_many_and_takes_the_next) {
    show(report(2));
    std::vector<unique_fd> open;
    for (std::size_t i = 0; i < http_listener::most_streams; ++i) {
        open.push_back(open_events());
        read_until(open.back(), "event: state");
    }
    const std::string refused = get("/events?token=" + token);
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
    EXPECT_TRUE(contains(refused, "too many pages are open")) << refused;
    EXPECT_TRUE(get("/?token=" + token).starts_with("HTTP/1.1 200 "));
    open.pop_back();
    std::string again;
    do  // Until it has seen that the last is gone.
        again = read_until(open_events(), "\r\n\r\n");
    while (again.starts_with("HTTP/1.1 503 "));
    EXPECT_TRUE(contains(again, "text/event-stream")) << again;
}

TEST_F(page_of_a_run, shows_so_many_nodes_and_counts_the_rest) {
    show(report(live_page::most_nodes + 3));
    const unique_fd browser = open_events();
    const std::string text = read_until(browser, "\"more_nodes\":3");
    EXPECT_FALSE(contains(text, "\"node" + std::to_string(live_page::most_nodes) + "\""));
}

TEST_F(page_of_a_run, brings_the_last_state_to_who_reads_before_it_ends) {
    show(report(2));
    const unique_fd browser = open_events();
    read_until(browser, "event: state");
    show(report(2), "failed", "the last words");
    page.finish();
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(browser.get(), part, sizeof part, 0)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    EXPECT_TRUE(contains(text, "the last words")) << text;
}

TEST(live_page, without_a_key_listens_on_loopback_only) {
    const error why = error_of([] { live_page no("0.0.0.0:0", {.title = "count"}); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_TRUE(contains(why.what(), "\"0.0.0.0:0?credentials=node7\"")) << why.what();
}

}  // namespace
}  // namespace amalgam::detail
