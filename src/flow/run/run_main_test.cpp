// run_main(): its result, and what it prints and writes.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/flow/report.hpp>
#include <amalgam/flow/run.hpp>

#include "few_threads.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

/// An environment variable, set while this lives.
class variable {
public:
    variable(const char* name, const std::string& value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    variable(const variable&) = delete;
    ~variable() { ::unsetenv(name_); }

private:
    const char* name_;
};

struct printed {
    int code;
    std::string out, err;
};
/// Runs a graph that sends one item, which its sink counts, or throws at.
printed run_one(int& got, bool fails = false) {
    graph g;
    g.pipeline(g.add_source<int>("from", [](outlet<int>& out) { out.send(1); }),
               g.add_sink<int>("to", [&](int n) {
                   if (fails) throw std::runtime_error("one is too much");
                   got += n;
               }));
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_main(g);
    const std::string err = testing::internal::GetCapturedStderr();
    return {code, testing::internal::GetCapturedStdout(), err};
}

TEST(run_main, returns_0_or_prints_why_and_returns_1) {
    int got = 0;
    const printed good = run_one(got), bad = run_one(got, true);
    EXPECT_EQ(good.code, 0);
    EXPECT_EQ(good.out + good.err, "");
    EXPECT_EQ(got, 1);
    EXPECT_EQ(bad.code, 1);
    EXPECT_EQ(bad.out, "");
    EXPECT_EQ(bad.err, "amalgam: the node \"to\" failed: one is too much\n");
}

TEST(run_main, shows_the_graph_where_it_is_asked_to_and_runs_nothing) {
    int got = 0;
    for (const std::string as : {"dot", "json"}) {
        const variable asked("AMALGAM_SHOW", as);
        const printed shown = run_one(got);
        EXPECT_EQ(shown.code, 0);
        EXPECT_NE(shown.out.find(as == "dot" ? "digraph" : "\"nodes\""), std::string::npos)
            << shown.out;
        EXPECT_EQ(shown.err, "");
    }
    const variable wrong("AMALGAM_SHOW", "picture");
    const printed refused = run_one(got);
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("expected dot or json"), std::string::npos) << refused.err;
    EXPECT_EQ(got, 0);
}

TEST(run_main, tells_what_the_nodes_did_where_it_is_asked_to) {
    int got = 0;
    const temp_folder own;
    const std::string file = own.with("report.json");
    const variable stats("AMALGAM_STATS", "1"), report("AMALGAM_REPORT", file);
    const printed told = run_one(got);
    EXPECT_EQ(told.code, 0);
    EXPECT_NE(told.err.find("bottleneck"), std::string::npos) << told.err;
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    const auto read = parse_run_report(text.str());
    ASSERT_TRUE(read);
    ASSERT_EQ(read->nodes.size(), 2u);
    const auto to = std::ranges::find(read->nodes, "to", &node_report::name);
    ASSERT_NE(to, read->nodes.end());
    EXPECT_EQ(to->taken, 1u);
    const variable nowhere("AMALGAM_REPORT", "/no/such/folder/report.json");
    const printed refused = run_one(got);
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("/no/such/folder/report.json"), std::string::npos) << refused.err;
}

/// The signals that this thread does not take.
std::string blocked_here() {
    std::ifstream status("/proc/thread-self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("SigBlk:")) return line;
    return {};
}

TEST(run_main, says_what_to_do_where_no_thread_is_left_and_leaves_the_signals_as_they_were) {
    if (detail::sanitized) GTEST_SKIP() << "threads cannot run out";
    const variable stats("AMALGAM_STATS", "1");
    const std::string blocked = blocked_here();
    std::string last;
    int spare = 0;
    for (;; ++spare) {
        int got = 0;
        const few_threads few(spare);
        const printed told = run_one(got);
        EXPECT_EQ(blocked_here(), blocked);
        if (told.code == 0) break;
        last = told.err;
        EXPECT_NE(last.find("raise the limit on processes (ulimit -u)"), last.npos) << last;
    }
    EXPECT_GE(spare, 2) << "one for the nodes, and one that looks at them";
    EXPECT_NE(last.find("a thread that reports on the run: "), last.npos) << last;
}

}  // namespace
}  // namespace amalgam
