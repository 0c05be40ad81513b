// The dashboard for Grafana asks for numbers that there are.
#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/streamed.hpp>

namespace amalgam {
namespace {

/// Words of an expression that are names of metrics, without what Prometheus adds to histograms.
void add_names(const std::string& expression, std::set<std::string>& names) {
    std::string word;
    for (const char c : expression + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
            word += c;
            continue;
        }
        if (word.starts_with("amalgam_") || word.starts_with("process_")) {
            if (word.ends_with("_bucket")) word.resize(word.size() - 7);
            names.insert(word);
        }
        word.clear();
    }
}

/// Names of metrics, or, with a "_" at the end, beginnings of names.
constexpr std::array not_asked_for{
    // A line for each peer: `amalgam top` has them.
    "amalgam_rpc_peer_",
    // Bounds of what the dashboard shows without them, or does not show.
    "amalgam_rpc_borrowed_bytes_limit",
    "amalgam_rpc_reader_bytes_limit",
    "amalgam_rpc_running_one_way_handlers_limit",
    "amalgam_rpc_unread_bytes_limit",
    // Sums of what it shows by procedure or by state.
    "amalgam_rpc_open_value_streams",
    "amalgam_rpc_served_total",
    "amalgam_rpc_transfers_total",
    "amalgam_stream_asleep",
    "amalgam_flow_node_given_total",
    "amalgam_flow_node_seconds_total",
    "amalgam_flow_channel_most_waiting_items",
    "amalgam_flow_channel_unconsumed_bytes",
    // Rare events, which the log tells of too.
    "amalgam_port_evicted_total",
    "amalgam_rpc_calls_timed_out_total",
    "amalgam_rpc_canceled_total",
    "amalgam_rpc_corrupt_total",
    "amalgam_rpc_cut_off_total",
    "amalgam_rpc_late_replies_total",
    "amalgam_rpc_malformed_total",
    "amalgam_rpc_one_way_calls_",
    "amalgam_rpc_refused_total",
    "amalgam_rpc_taken_back_total",
    "amalgam_rpc_transfers_failed_total",
    "amalgam_rpc_untold_total",
    // What engines hold for others, of which the dashboard shows the largest.
    "amalgam_rpc_lent_values",
    "amalgam_rpc_peers",
    "amalgam_rpc_reader_bytes",
    "amalgam_rpc_running_one_way_handlers",
};

bool matches(std::string_view name, std::string_view listed) {
    return listed.ends_with('_') ? name.starts_with(listed) : name == listed;
}

std::set<std::string> names_asked_for() {
    std::ifstream file(AMALGAM_DASHBOARD);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto dashboard = nlohmann::json::parse(text);
    std::set<std::string> asked;
    std::size_t expressions = 0;
    for (const auto& panel : dashboard.at("panels")) {
        if (!panel.contains("targets")) continue;
        for (const auto& target : panel.at("targets")) {
            add_names(target.at("expr").get<std::string>(), asked);
            ++expressions;
        }
    }
    EXPECT_GT(expressions, 50u);
    return asked;
}

/// Of an engine that has done something of everything, and of a run.
std::set<std::string> names_told() {
    engine here("shm://");
    here.define("sum", [](int a, int b) { return a + b; });
    const peer self = here.lookup(here.address());
    EXPECT_EQ(here.procedure<int(int, int)>("sum").on(self)(1, 2), 3);
    EXPECT_FALSE(here.procedure<void()>("none").on(self).try_call());
    here.define("count", [](stream_writer<int>& out) { out(1); });
    auto values = here.procedure<streamed<int>()>("count").on(self)();
    while (values.next())
        continue;
    std::set<std::string> told;
    const auto add = [&](const metric_snapshot& all) {
        for (const metric_family& each : all.families)
            told.insert(each.what.name);
    };
    add(read_metrics(here));
    run_report report;
    report.nodes.emplace_back().name = "a";
    report.channels.emplace_back().between_groups = true;
    add(to_metrics(report));
    return told;
}

TEST(dashboard, asks_for_numbers_that_there_are) {
    const std::set<std::string> told = names_told();
    for (const std::string& each : names_asked_for())
        EXPECT_TRUE(told.contains(each)) << each;
}

TEST(dashboard, asks_for_all_numbers_but_those_listed_here) {
    const std::set<std::string> asked = names_asked_for(), told = names_told();
    const auto is_listed = [](const std::string& name) {
        return std::any_of(not_asked_for.begin(), not_asked_for.end(),
                           [&](std::string_view one) { return matches(name, one); });
    };
    for (const std::string& each : told)
        EXPECT_NE(asked.contains(each), is_listed(each)) << each;
    for (const std::string_view one : not_asked_for)
        EXPECT_TRUE(std::any_of(told.begin(), told.end(),
                                [&](const std::string& name) { return matches(name, one); }))
            << one << " is listed, and there is no such number";
}

}  // namespace
}  // namespace amalgam
