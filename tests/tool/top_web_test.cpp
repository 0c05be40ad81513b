// `amalgam top --web`: the live page of engines.
#include <algorithm>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "contains.hpp"
#include "http_client.hpp"
#include "tool/run_tool.hpp"
#include "top/web.hpp"

namespace amalgam::tool {
namespace {

/// An `amalgam top --web`, and a browser that reads its events.
class page_of_top {
public:
    /// `option`: before `where`, if any.
    explicit page_of_top(const std::string& where, const char* option = nullptr) {
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        const unique_fd output(ends[0]);
        unique_fd into(ends[1]);
        tool_ = ::fork();
        if (tool_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::dup2(into.get(), STDOUT_FILENO);
            if (option == nullptr)
                ::execl(AMALGAM_TOOL, AMALGAM_TOOL, "top", where.c_str(), "--web", "--interval",
                        "0.1", nullptr);
            else
                ::execl(AMALGAM_TOOL, AMALGAM_TOOL, "top", option, where.c_str(), "--web",
                        "--interval", "0.1", nullptr);
            ::_exit(127);
        }
        into.reset();
        std::string line;
        for (char one = 0; ::read(output.get(), &one, 1) == 1 && one != '\n';)
            line += one;
        const std::size_t at = line.find("http://"), slash = line.find('/', at + 7);
        if (at == line.npos || slash == line.npos) throw std::runtime_error("said: " + line);
        host_ = line.substr(at + 7, slash - at - 7);
        token_ = line.substr(line.find("token=") + 6);
        events_ = connect_to(host_);
        say(events_, request("GET /events?token=" + token_));
    }
    ~page_of_top() {
        ::kill(tool_, SIGKILL);
        ::waitpid(tool_, nullptr, 0);
    }

    std::string request(const std::string& what, const std::string& fields = {}) const {
        return what + " HTTP/1.1\r\nHost: " + host_ + "\r\n" + fields + "\r\n";
    }
    std::string press(const std::string& path) const {
        return ask(host_,
                   request("POST " + path, "X-Amalgam-Token: " + token_ + "\r\nOrigin: http://" +
                                               host_ + "\r\nContent-Length: 0\r\n"));
    }
    /// The next event of that name that `fits`.
    template <typename Fits>
    nlohmann::json next(std::string_view name, Fits fits) {
        const std::string front = fmt::format("event: {}\ndata: ", name);
        char part[4096];
        for (;;) {
            const std::size_t at = read_.find(front);
            const std::size_t end = at == read_.npos ? at : read_.find("\n\n", at);
            if (end != read_.npos) {
                const auto event =
                    nlohmann::json::parse(read_.substr(at + front.size(), end - at - front.size()));
                read_.erase(0, end);
                if (fits(event)) return event;
                continue;
            }
            const ssize_t got = ::recv(events_.get(), part, sizeof part, 0);
            if (got <= 0) throw std::runtime_error("the page has ended");
            read_.append(part, static_cast<std::size_t>(got));
        }
    }
    nlohmann::json next_in(std::string_view state) {
        return next("state", [&](const nlohmann::json& each) { return each["state"] == state; });
    }

private:
    ::pid_t tool_ = -1;
    std::string host_, token_, read_;
    unique_fd events_;
};

std::unique_ptr<engine> served(const std::string& uri) {
    auto one = std::make_unique<engine>(uri);
    one->define("sum", [](int a, int b) { return a + b; });
    offer_metrics(*one);
    return one;
}

TEST(top_web, shows_an_engine_its_ults_its_loss_and_its_return) {
    const std::string uri = fmt::format("shm://top_web_{}", ::getpid());
    auto server = served(uri);
    page_of_top page(uri);
    const auto has_procedures = [](const nlohmann::json& state) {
        for (const auto& table : state["tables"])
            if (table["name"] == "procedures") return true;
        return false;
    };
    const nlohmann::json first = page.next("state", has_procedures);
    EXPECT_EQ(first["state"], "running");
    EXPECT_EQ(first["command"], uri);
    EXPECT_EQ(first["has_graph"], false);
    EXPECT_EQ(first["can_stop"], false);
    EXPECT_EQ(first["processes"][0]["label"], uri);
    EXPECT_GT(first["processes"][0]["memory"], 0);

    EXPECT_TRUE(page.press("/stop").starts_with("HTTP/1.1 404 "));
    const std::string taken =
        page.press(fmt::format("/ults?process=shm%3a%2F%2F{}", uri.substr(6)));
    EXPECT_TRUE(taken.starts_with("HTTP/1.1 200 ")) << taken;
    const auto any = [](const nlohmann::json&) { return true; };
    const nlohmann::json ults = page.next("ults", any);
    EXPECT_EQ(ults["process"], uri);
    EXPECT_EQ(ults["pid"], ::getpid());
    EXPECT_TRUE(page.press("/ults?process=else").starts_with("HTTP/1.1 200 "));
    EXPECT_TRUE(contains(page.next("ults", any)["why"].get<std::string>(), "there is no process"));

    server.reset();
    const nlohmann::json lost = page.next_in("lost");
    EXPECT_NE(lost["sentence"], "");
    server = served(uri);
    EXPECT_EQ(page.next_in("running")["sentence"], "");
}

TEST(top_web, shows_the_processes_of_a_directory_and_their_ults) {
    engine on("shm://");
    offer_metrics(on);
    const directory_server directory(on);
    const auto server = served("shm://");
    const context here(*server, {.directory = on.address()});
    page_of_top page(on.address(), "--directory");
    const nlohmann::json state = page.next(
        "state", [](const nlohmann::json& each) { return each["processes"].size() == 2; });
    EXPECT_EQ(state["command"], "--directory " + on.address());
    EXPECT_EQ(state["processes"][0]["label"], "directory");
    EXPECT_EQ(state["processes"][1]["label"], server->address());
    EXPECT_TRUE(page.press("/ults?process=directory").starts_with("HTTP/1.1 200 "));
    const nlohmann::json ults = page.next("ults", [](const nlohmann::json&) { return true; });
    EXPECT_EQ(ults["pid"], ::getpid());
    EXPECT_FALSE(ults["ults"].empty());
}

TEST(top_web, an_engine_that_is_not_there_is_an_error_at_once) {
    const auto [code, output] = tool_testing::amalgam_tool("top shm://top_web_nobody --web");
    EXPECT_EQ(code, 1) << output;
    EXPECT_FALSE(contains(output, "http://")) << output;
}

TEST(top_web, rows_are_in_the_order_of_the_terminal_and_texts_come_first) {
    top_model model;
    metric_writer all;
    for (const auto& [name, running] : {std::pair("alpha", 1.0), std::pair("beta", 3.0)}) {
        const std::vector<metric_label> of{{"procedure", name}, {"provider", "0"}};
        all.add({"amalgam_rpc_handled_total", "", metric_kind::counter}, of, running);
    }
    all.add({"process_resident_memory_bytes", ""}, {}, 4096);
    numbers_told told{
        .processes = {{"G1", all.take()}}, .silent = {"tcp://h:1: it is gone"}, .run = {}};
    model.take(told, top_model::clock::time_point{});
    const page_state now = state_of(model, told);
    ASSERT_EQ(now.processes.size(), 2u);
    EXPECT_EQ(now.processes[0].memory, 4096u);
    EXPECT_EQ(now.processes[1].label, "tcp://h:1");
    EXPECT_FALSE(now.processes[1].running);
    ASSERT_EQ(now.tables.size(), 1u);
    EXPECT_EQ(now.tables[0].name, "procedures");
    EXPECT_EQ(now.tables[0].texts, 2u);
    EXPECT_EQ(now.tables[0].rows[0][0].text, "alpha");
}

TEST(top_web, a_process_may_tell_any_number_of_bytes) {
    top_model model;
    numbers_told told;
    for (const double bytes : {1e300, -1.0}) {
        metric_writer all;
        all.add({"process_resident_memory_bytes", ""}, {}, bytes);
        told.processes.push_back({std::to_string(bytes), all.take()});
    }
    model.take(told, top_model::clock::time_point{});
    const page_state now = state_of(model, told);
    ASSERT_EQ(now.processes.size(), 2u);
    EXPECT_GE(now.processes[0].memory, std::uint64_t{1} << 63);
    EXPECT_EQ(now.processes[1].memory, 0u);
}

}  // namespace
}  // namespace amalgam::tool
