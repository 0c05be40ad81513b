// The dashboard for Grafana asks for numbers that there are.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

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

TEST(dashboard, asks_for_numbers_that_there_are) {
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
    EXPECT_GT(expressions, 20u);

    engine here("shm://");
    here.define("sum", [](int a, int b) { return a + b; });
    const peer self = here.lookup(here.address());
    EXPECT_EQ(here.procedure<int(int, int)>("sum").on(self)(1, 2), 3);
    EXPECT_FALSE(here.procedure<void()>("none").on(self).try_call());
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
    for (const std::string& each : asked)
        EXPECT_TRUE(told.contains(each)) << each;
}

}  // namespace
}  // namespace amalgam
