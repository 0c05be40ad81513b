// `amalgam top`: what it shows of numbers, and how it behaves on a terminal.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <amalgam/core/latency_histogram.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "contains.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"
#include "tool/run_tool.hpp"
#include "top/drawing.hpp"
#include "top/tables.hpp"

namespace amalgam::tool {
namespace {

using namespace std::chrono_literals;

numbers_told told(double calls, double running = 0) {
    latency_histogram times;
    for (int i = 0; i < 100; ++i)
        times.record(2ms);
    metric_writer all;
    for (const auto& [name, factor] : {std::pair("alpha", 1.0), std::pair("beta", 3.0)}) {
        const std::vector<metric_label> of{{"procedure", name}, {"provider", "0"}};
        all.add({"amalgam_rpc_handled_total", "", metric_kind::counter}, of, factor * calls);
        all.add({"amalgam_rpc_handlers_running", ""}, of, running);
        all.add({"amalgam_rpc_handler_seconds", "", metric_kind::latency}, of, times.snapshot());
        all.add({"amalgam_rpc_handler_received_bytes_total", "", metric_kind::counter}, of,
                factor * calls * 1024);
        all.add({"amalgam_rpc_handler_sent_bytes_total", "", metric_kind::counter}, of,
                factor * calls * 2048);
    }
    const std::vector<metric_label> values{
        {"procedure", "alpha"}, {"end", "handler"}, {"direction", "sent"}};
    all.add({"amalgam_rpc_open_streams", ""}, values, 2.0);
    all.add({"amalgam_rpc_streams_total", "", metric_kind::counter}, values, calls);
    all.add({"amalgam_rpc_stream_values_total", "", metric_kind::counter}, values, 10 * calls);
    all.add({"amalgam_rpc_stream_bytes_total", "", metric_kind::counter}, values, 40 * calls);
    all.add({"amalgam_rpc_stream_credit_waits_total", "", metric_kind::counter}, values, calls);
    const std::vector<metric_label> stream{{"stream", "one"}};
    all.add({"amalgam_stream_asleep", ""}, stream, 1.0);
    all.add({"amalgam_stream_idle_seconds_total", "", metric_kind::counter}, stream, calls / 400);
    all.add({"amalgam_stream_steals_total", "", metric_kind::counter}, stream, calls);
    all.add({"amalgam_stream_longest_hold_seconds", ""}, stream, 0.25);
    const std::vector<metric_label> pool{{"pool", "work"}};
    all.add({"amalgam_pool_ready_units", ""}, pool, 4.0);
    all.add({"amalgam_pool_ults", ""}, pool, 9.0);
    all.add({"amalgam_pool_taken_units_total", "", metric_kind::counter}, pool, 5 * calls);
    for (const char* by : {"one", "two"})
        all.add({"amalgam_pool_served", ""}, {{"pool", "work"}, {"stream", by}}, 1.0);
    all.add({"amalgam_pool_served", ""}, {{"pool", "other"}, {"stream", "three"}}, 1.0);
    const std::vector<metric_label> port{{"port", "shm://x"}, {"transport", "shm"}};
    all.add({"amalgam_port_registered_bytes", ""}, port, 4096.0);
    all.add({"amalgam_port_puts_total", "", metric_kind::counter}, port, calls);
    all.add({"amalgam_port_gets_total", "", metric_kind::counter}, port, 2 * calls);
    all.add({"amalgam_port_retries_total", "", metric_kind::counter}, port, 3 * calls);
    all.add({"process_resident_memory_bytes", ""}, {}, 3.0 * (1 << 20));
    return {.processes = {{"G1", all.take()}}, .silent = {}, .run = {}};
}

const top_table& table_of(const std::vector<top_table>& all, const std::string& name) {
    for (const top_table& each : all)
        if (each.name == name) return each;
    throw std::runtime_error("no table " + name);
}

/// Two rounds, two seconds apart, with 100 and 300 calls a second.
std::vector<top_table> after_two_rounds() {
    top_model model;
    const top_model::clock::time_point start{};
    model.take(told(0), start);
    EXPECT_FALSE(model.has_rates());
    model.take(told(200), start + 2s);
    EXPECT_TRUE(model.has_rates());
    return model.tables();
}

TEST(top_tables, have_the_rates_between_two_rounds) {
    const auto all = after_two_rounds();
    const top_table& procedures = table_of(all, "procedures");
    ASSERT_EQ(procedures.rows.size(), 2u);
    const auto rows = chosen_rows(procedures, {});  // By busy.
    EXPECT_EQ(rows[0][0].text, "beta");
    EXPECT_DOUBLE_EQ(rows[0][3].number, 300);
    EXPECT_NEAR(rows[0][2].number, 0.6, 0.05);  // 300 of 2 ms each second.
    EXPECT_DOUBLE_EQ(rows[1][3].number, 100);
    EXPECT_EQ(written(rows[1][6], shown_as::time).substr(0, 1), "2");
    EXPECT_EQ(written(table_of(all, "processes").rows[0][3], shown_as::bytes), "3 MiB");
}

TEST(top_tables, have_bytes_of_procedures_values_of_streams_and_the_work_of_streams_and_ports) {
    const auto all = after_two_rounds();  // 100 calls a second.
    const auto procedures = chosen_rows(table_of(all, "procedures"), {});
    EXPECT_DOUBLE_EQ(procedures[0][8].number, 300 * 1024);
    EXPECT_DOUBLE_EQ(procedures[0][9].number, 300 * 2048);
    const auto values = table_of(all, "values").rows;
    ASSERT_EQ(values.size(), 1u);
    EXPECT_EQ(values[0][2].text, "handler sent");
    EXPECT_DOUBLE_EQ(values[0][3].number, 1000);
    EXPECT_DOUBLE_EQ(values[0][4].number, 4000);
    EXPECT_DOUBLE_EQ(values[0][5].number, 2);
    EXPECT_DOUBLE_EQ(values[0][6].number, 100);
    const auto streams = table_of(all, "streams").rows;
    ASSERT_EQ(streams.size(), 1u);
    EXPECT_EQ(written(streams[0][4], shown_as::percent), "25 %");
    EXPECT_DOUBLE_EQ(streams[0][5].number, 100);
    EXPECT_EQ(written(streams[0][6], shown_as::time), "250.0 ms");
    const auto ports = table_of(all, "ports").rows;
    ASSERT_EQ(ports.size(), 1u);
    EXPECT_DOUBLE_EQ(ports[0][4].number, 100);
    EXPECT_DOUBLE_EQ(ports[0][5].number, 200);
    EXPECT_DOUBLE_EQ(ports[0][6].number, 300);
    EXPECT_DOUBLE_EQ(ports[0][7].number, 4096);
}

TEST(top_tables, have_the_work_of_pools_and_who_serves_them) {
    const auto all = after_two_rounds();
    const auto pools = table_of(all, "pools").rows;
    ASSERT_EQ(pools.size(), 1u);
    EXPECT_EQ(pools[0][0].text, "work");
    EXPECT_DOUBLE_EQ(pools[0][2].number, 4);
    EXPECT_DOUBLE_EQ(pools[0][3].number, 500);
    EXPECT_DOUBLE_EQ(pools[0][4].number, 9);
    EXPECT_EQ(pools[0][5].text, "one, two");
}

TEST(top_tables, a_process_that_began_again_has_no_rate_below_zero) {
    top_model model;
    const top_model::clock::time_point start{};
    model.take(told(1000), start);
    model.take(told(10), start + 1s);
    const auto all = model.tables();
    for (const auto& row : table_of(all, "procedures").rows)
        EXPECT_EQ(row[3].number, 0);
}

TEST(top_tables, are_sorted_and_filtered_as_chosen) {
    const auto all = after_two_rounds();
    const top_table& table = table_of(all, "procedures");
    EXPECT_EQ(chosen_rows(table, {.sort_by = {{"procedures", 0}}})[0][0].text, "alpha");
    EXPECT_EQ(chosen_rows(table, {.sort_by = {{"procedures", 0}}, .ascending = true})[0][0].text,
              "beta");
    EXPECT_EQ(chosen_rows(table, {.filter = "alp"}).size(), 1u);
    EXPECT_EQ(chosen_rows(table, {.filter = "nothing"}).size(), 0u);
    EXPECT_TRUE(contains(lines_of(table, {.sort_by = {{"procedures", 1}}}, 80)[0], "process*"));
    const std::string narrow = lines_of(table, {.sort_by = {{"procedures", 9}}}, 60)[0];
    EXPECT_TRUE(contains(narrow, "out/s*")) << narrow;
    EXPECT_FALSE(contains(narrow, "in/s")) << narrow;
    EXPECT_TRUE(contains(lines_of(table, {}, 200)[0], "in/s"));
}

TEST(top_tables, can_be_scrolled_to_their_last_column) {
    const auto all = after_two_rounds();
    const top_table& table = table_of(all, "procedures");
    top_view view;
    constexpr std::size_t width = 50;
    ASSERT_TRUE(leaves_out_last_columns(table, view, width));
    EXPECT_FALSE(contains(lines_of(table, view, width)[0], "out/s"));
    while (leaves_out_last_columns(table, view, width)) {
        ++view.columns_left_out;
        ASSERT_LT(view.columns_left_out, table.columns.size());
        for (const std::string& line : lines_of(table, view, width))
            EXPECT_LE(line.size(), width) << line;
    }
    const auto lines = lines_of(table, view, width);
    EXPECT_TRUE(lines[0].ends_with("out/s")) << lines[0];
    EXPECT_TRUE(lines[0].starts_with("procedure")) << lines[0];  // Whose numbers they are.
    EXPECT_TRUE(lines[1].starts_with("beta")) << lines[1];
    EXPECT_FALSE(contains(lines[0], "process ")) << lines[0];
    EXPECT_FALSE(leaves_out_last_columns(table, {}, 200));
}

TEST(top_tables, fit_the_width) {
    top_table wide{"wide", {{"name", shown_as::text}, {"number", shown_as::count}}, 1, {}};
    wide.rows.push_back({{std::string(200, 'x'), 0}, {{}, 1234567}});
    wide.rows.push_back({{"short", 0}, {{}, 5}});
    for (const std::size_t width : {20u, 40u, 80u}) {
        const auto lines = lines_of(wide, {}, width);
        ASSERT_EQ(lines.size(), 3u);
        for (const std::string& each : lines)
            EXPECT_LE(each.size(), width);
        EXPECT_TRUE(contains(lines[1], "~")) << lines[1];
        EXPECT_TRUE(lines[1].ends_with("1.2M")) << lines[1];  // Numbers are not cut off.
    }
    EXPECT_EQ(cut("abc", 3), "abc");
    EXPECT_EQ(cut("abcd", 3), "ab~");
    EXPECT_EQ(cut("äöüß", 4), "äöüß");
    EXPECT_EQ(cut("äöüß", 3), "äö~");
}

TEST(top_tables, tabs_show_the_chosen_one_in_80_columns_and_in_fewer) {
    std::vector<top_table> all;
    for (const char* each :
         {"processes", "nodes", "channels", "procedures", "peers", "streams", "pools"})
        all.emplace_back().name = each;
    EXPECT_EQ(tabs_of(all, 1, 200),
              "amalgam top   1 processes  [2 nodes]  3 channels   4 procedures   5 peers   6 "
              "streams   7 pools ");
    EXPECT_EQ(tabs_of(all, 6, 80),
              " 1 processes  2 nodes  3 channels  4 procedures  5 peers  6 streams [7 pools]");
    EXPECT_EQ(tabs_of(all, 6, 40), " 1  2  3  4  5  6 [7 pools]");
}

TEST(top_tables, curves_are_as_wide_as_asked) {
    EXPECT_EQ(curve_text({0, 1, 2}, 5, true), "  059");
    EXPECT_EQ(curve_text({9, 0, 1}, 2, true), "09");
    EXPECT_EQ(curve_text({}, 3, true), "   ");
    EXPECT_EQ(curve_text({0, 2}, 2, false), "▁█");
}

struct served {
    engine here{"shm://"};

    served() {
        here.define("sum", [](int a, int b) { return a + b; });
        offer_metrics(here);
    }
};

/// Answers that come as late as they like are no failure.
constexpr char patiently[] = " --timeout 3600000";

TEST(tool_top, once_prints_all_tables) {
    served one;
    const auto got = tool_testing::amalgam_tool("top " + one.here.address() +
                                                " --once --interval 0.1" + patiently);
    EXPECT_EQ(got.code, 0) << got.output;
    for (const std::string part :
         {"1 process\n", "\nprocesses\n", "\nprocedures\n", "sum ", "\nstreams\n", "\npools\n"})
        EXPECT_TRUE(contains(got.output, part)) << part << " in " << got.output;
    EXPECT_TRUE(contains(got.output, one.here.address())) << got.output;
}

TEST(tool_top, once_as_json_has_the_numbers_of_all_tables) {
    served one;
    const auto got = tool_testing::amalgam_tool("top " + one.here.address() +
                                                " --once --interval 0.1 --json" + patiently);
    ASSERT_EQ(got.code, 0) << got.output;
    const auto parsed = nlohmann::json::parse(got.output);
    EXPECT_EQ(parsed["head"][0], "1 process");
    EXPECT_EQ(parsed["procedures"][0]["procedure"], "sum") << got.output;
    EXPECT_EQ(parsed["procedures"][0]["calls/s"], 0) << got.output;
    EXPECT_EQ(parsed["processes"][0]["process"], one.here.address());
}

TEST(top_tables, of_a_peer_with_infinite_numbers_are_drawn) {
    top_model model;
    top_model::clock::time_point now{};
    constexpr double endless = std::numeric_limits<double>::infinity();
    model.take(told(0), now);
    for (const double calls : {endless, 1e308, 1.0}) {
        numbers_told next = told(calls, calls);
        for (const char* name : {"process_cpu_seconds_total", "amalgam_rpc_served_total"})
            next.processes[0].numbers.families.push_back(
                {{name, "", metric_kind::counter}, {{{}, calls}}});
        std::sort(next.processes[0].numbers.families.begin(),
                  next.processes[0].numbers.families.end(),
                  [](const auto& a, const auto& b) { return a.what.name < b.what.name; });
        model.take(std::move(next), now += 1s);
    }
    for (const auto& each : model.curves())
        for (const bool plain : {false, true})
            for (const char c : curve_text(each.values, 3, plain))
                EXPECT_TRUE(plain ? (c >= '0' && c <= '9') : static_cast<unsigned char>(c) >= 0x80);
    for (const top_table& each : model.tables())
        for (const std::string& line : lines_of(each, {}, 80))
            EXPECT_FALSE(contains(line, "inf") || contains(line, "nan")) << line;
}

TEST(top_tables, of_a_peer_with_names_and_numbers_without_end_are_bounded) {
    metric_snapshot all;
    metric_family& handled = all.families.emplace_back();
    handled.what = {"amalgam_rpc_handled_total", "", metric_kind::counter};
    for (int i = 0; i < 100'000; ++i)
        handled.samples.push_back(
            {{{"procedure", "\xc2\x9b" + std::to_string(i)}, {"provider", "0"}}, 1});
    top_model model;
    const top_model::clock::time_point start{};
    for (int round = 0; round < 2; ++round)
        model.take({.processes = {{"G1", all}}, .silent = {}, .run = {}}, start + round * 1s);
    const auto tables = model.tables();
    const top_table& procedures = table_of(tables, "procedures");
    EXPECT_EQ(procedures.rows.size(), metric_limits{}.label_sets);
    EXPECT_EQ(procedures.rows[0][0].text, "\\xc2\\x9b0");
}

TEST(tool_top, without_a_terminal_says_what_to_do) {
    served one;
    const auto got = tool_testing::amalgam_tool("top " + one.here.address());
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "--once")) << got.output;
    const auto none = tool_testing::amalgam_tool("top");
    EXPECT_EQ(none.code, 2);
    EXPECT_TRUE(contains(none.output,
                         "no places to ask are given, expected one: the addresses of "
                         "engines, --run or --directory; example: amalgam top --run"))
        << none.output;
}

/// A terminal in which a command runs, by tmux, which ends with this process, too.
class terminal_session {
public:
    terminal_session(const std::string& command, unsigned columns, unsigned rows) {
        const std::string test = std::to_string(::getpid());
        tmux("new-session -d -x " + std::to_string(columns) + " -y " + std::to_string(rows) + " '" +
             command + "' \\; run-shell -b 'while kill -0 " + test +
             " 2>/dev/null; do sleep 1; done; tmux -L " + name_ + " kill-server'");
    }
    ~terminal_session() { tmux("kill-server"); }

    std::string screen() { return tmux("capture-pane -p"); }
    void press(const std::string& keys) { tmux("send-keys " + keys); }
    void resize(unsigned columns, unsigned rows) {
        tmux("resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows));
    }
    /// The screen once it is as wanted: what is drawn comes in pieces. The watchdog of the test
    /// ends a wait for what never comes.
    template <typename Wanted>
    std::string wait_until(Wanted is_wanted) {
        for (;;) {
            std::string now = screen();
            if (is_wanted(now)) return now;
            if (contains(now, "no server running") || contains(now, "error connecting")) {
                ADD_FAILURE() << "its program has ended: " << now;
                return now;
            }
        }
    }
    /// The screen once it has all of these.
    std::string wait_for(const std::vector<std::string>& parts) {
        return wait_until([&](const std::string& now) {
            return std::all_of(parts.begin(), parts.end(),
                               [&](const std::string& each) { return contains(now, each); });
        });
    }
    void wait_for_the_end() {
        while (tool_testing::run_tool("tmux", "-L " + name_ + " has-session").code == 0) {
        }
    }

private:
    std::string tmux(const std::string& what) {
        return tool_testing::run_tool("env -u TMUX LC_ALL=C.UTF-8 TERM=xterm tmux",
                                      "-L " + name_ + " -f /dev/null " + what)
            .output;
    }
    // Each has a server of its own: one that ends still takes sessions, and loses them.
    static inline int sessions_ = 0;
    const std::string name_ =
        "amalgam-test-" + std::to_string(::getpid()) + "-" + std::to_string(++sessions_);
};

std::size_t longest_line(const std::string& text) {
    std::size_t longest = 0, columns = 0;
    for (const char c : text) {
        if (c == '\n')
            columns = 0;
        else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80)
            ++columns;
        longest = std::max(longest, columns);
    }
    return longest;
}

/// Why no terminal can be tried; empty: one can.
std::string no_terminal() {
    if (tool_testing::run_tool("command -v", "tmux").code != 0) return "tmux is not installed";
    if (contains(
            tool_testing::run_tool("TERM=xterm " + shell_word(AMALGAM_TOOL), "top shm://x").output,
            "without a terminal library"))
        return "amalgam was built without ncurses";
    return {};
}

TEST(tool_top, a_terminal_that_does_not_move_its_cursor_is_refused) {
    if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
    served one;
    terminal_session shown("sh -c \"TERM=dumb " + shell_word(AMALGAM_TOOL) + " top " +
                               one.here.address() + "; echo code \\$?; cat\"",
                           200, 24);
    shown.wait_for({"does not move its cursor", "code 1"});
}

TEST(tool_top, ends_when_its_terminal_is_gone) {
    if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
    served one;
    const temp_folder folder;
    std::ofstream(folder.with("script"))
        << "trap '' HUP\necho $$ >" << folder.with("part") << "\nmv " << folder.with("part") << ' '
        << folder.with("pid") << "\nexec " << shell_word(AMALGAM_TOOL) << " top "
        << one.here.address() << patiently << '\n';
    {
        terminal_session shown("sh " + folder.with("script"), 80, 24);
        shown.wait_for({"q quit"});
    }
    ::pid_t pid = 0;
    std::ifstream(folder.with("pid")) >> pid;
    ASSERT_GT(pid, 0);
    while (::kill(pid, 0) == 0)
        std::this_thread::yield();
}

TEST(tool_top, on_a_terminal_answers_keys_and_changes_of_its_size) {
    if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
    served one;
    one.here.define("other", [] {});
    terminal_session shown(
        shell_word(AMALGAM_TOOL) + " top " + one.here.address() + " --interval 0.1" + patiently, 80,
        24);
    const std::string screen = shown.wait_for({"[1 processes]", "q quit"});
    EXPECT_LE(longest_line(screen), 80u) << screen;
    shown.wait_for({"cpu "});  // A second round: there are curves.

    shown.press("2");
    shown.wait_for({"[2 procedures]", "sum", "other"});
    shown.press("/ s u m Enter");
    shown.wait_until([](const std::string& now) {
        return contains(now, "filter \"sum\"") && !contains(now, "other");
    });
    shown.press("/ Escape");
    shown.wait_for({"other"});
    shown.press("'>'");
    shown.wait_for({"calls/s*"});
    shown.press("Space");
    shown.wait_for({"PAUSED"});
    shown.press("Space");

    shown.resize(50, 24);
    shown.wait_until([](const std::string& now) {
        return longest_line(now) <= 50 && contains(now, "calls/s*") && !contains(now, "out/s");
    });
    shown.wait_until([&](const std::string& now) {
        if (contains(now, "out/s")) return true;
        shown.press("Right");
        return false;
    });
    shown.wait_for({"out/s", "[2 procedures", "sum"});
    for (int i = 0; i < 20; ++i)
        shown.press("Left");
    shown.wait_for({"calls/s*"});
    shown.resize(50, 15);
    shown.wait_until([](const std::string& now) {
        return longest_line(now) <= 50 && contains(now, "[2 procedures");
    });
    shown.resize(120, 40);
    shown.wait_for({"calls/s*", "out/s"});
    shown.press("q");
    shown.wait_for_the_end();
}

TEST(tool_top, ends_at_once_while_an_engine_does_not_answer) {
    if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
    engine stuck("shm://");
    std::atomic<bool> reached = false, ends = false;
    stuck.define(detail::library_name{"amalgam.metrics"}, [&] {
        reached = true;
        while (!ends)
            this_task::yield();
        return metric_snapshot();
    });
    terminal_session shown(shell_word(AMALGAM_TOOL) + " top " + stuck.address() + patiently, 80,
                           24);
    shown.wait_for({"waiting for the first answer"});
    while (!reached)
        std::this_thread::yield();
    shown.press("q");
    shown.wait_for_the_end();
    ends = true;
}

}  // namespace
}  // namespace amalgam::tool
