#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "contains.hpp"
#include "run_tool.hpp"
#include "shell_word.hpp"
#include "temp_folder.hpp"

// `amalgam trace --otlp` with a collector of the test's own (otlp_collector), which checks what it
// gets by the published rules, and does to its clients what collectors do.

namespace amalgam {
namespace {

using tool_testing::outcome;
using tool_testing::run_tool;

const std::string tool = shell_word(AMALGAM_TOOL);
const std::string program = shell_word(AMALGAM_TRACED_PROGRAM);

struct otlp : testing::Test {
    temp_folder folder;

    /// What the collector found.
    nlohmann::json collect(const std::string& mode, const std::string& arguments,
                           const std::string& environment = "") {
        const outcome ran =
            run_tool("TMPDIR=" + folder.path() + " " + environment + " " +
                         shell_word(AMALGAM_OTLP_COLLECTOR) + " " + mode + " " + tool,
                     arguments);
        EXPECT_EQ(ran.code, 0) << ran.output;
        auto found = nlohmann::json::parse(ran.output, nullptr, false);
        EXPECT_TRUE(found.is_object()) << ran.output;
        if (found.is_object()) {
            EXPECT_EQ(found["faults"], nlohmann::json::array()) << found;
        }
        return found;
    }
    nlohmann::json trace(const std::string& mode, const std::string& what,
                         const std::string& environment = "") {
        auto found = collect(mode, "trace --otlp {} -- " + program + " " + what, environment);
        for (const auto& each : std::filesystem::directory_iterator(folder.path()))
            EXPECT_FALSE(each.is_directory()) << each.path();
        return found;
    }
    static std::string output(const nlohmann::json& found) {
        return found["output"].get<std::string>();
    }
};

TEST_F(otlp, calls_and_handlers_of_two_processes_are_one_tree) {
    const auto found = trace("take", "two", "OTEL_SERVICE_NAME=shop");
    ASSERT_EQ(found["code"], 0) << found;
    EXPECT_TRUE(contains(output(found), "spans of 2 processes are at http://127.0.0.1:")) << found;
    std::map<std::string, nlohmann::json> by_id;
    std::multiset<std::string> seen;
    for (const auto& each : found["spans"]) {
        EXPECT_TRUE(by_id.emplace(each["id"], each).second) << each;
        EXPECT_EQ(each["service"], "shop");
        seen.insert(each["attributes"]["amalgam.kind"].get<std::string>() + " " +
                    each["name"].get<std::string>());
    }
    EXPECT_EQ(seen.count("call node"), 2u) << found;
    EXPECT_EQ(seen.count("handler node"), 2u) << found;
    EXPECT_EQ(seen.count("handler leaf"), 2u) << found;
    EXPECT_EQ(seen.count("handler note"), 1u) << found;
    int leaves = 0;
    for (const auto& each : found["spans"]) {
        const std::string parent = each["parent"];
        const bool is_root = each["name"] != "leaf" && each["kind"] == 3;
        EXPECT_EQ(parent.empty(), is_root) << each;
        if (parent.empty()) continue;
        ASSERT_EQ(by_id.count(parent), 1u) << each;
        EXPECT_EQ(by_id[parent]["trace"], each["trace"]);
        if (each["name"] != "leaf" || each["kind"] != 2) continue;
        // leaf's handler, its call, node's handler in the same process, node's call in the other.
        ++leaves;
        const auto& handler = by_id[by_id[parent]["parent"]];
        EXPECT_EQ(handler["name"], "node");
        EXPECT_EQ(handler["kind"], 2);
        EXPECT_TRUE(contains(handler["events"].dump(), "waits for rpc reply")) << handler;
        const auto& call = by_id[handler["parent"]];
        EXPECT_EQ(call["kind"], 3);
        EXPECT_NE(call["pid"], handler["pid"]);
    }
    EXPECT_EQ(leaves, 2);
    EXPECT_GE(seen.count("transfer get"), 1u) << found;
    for (const auto& each : found["spans"]) {
        if (each["attributes"]["amalgam.kind"] != "transfer") continue;
        const auto& handler = by_id[each["parent"]];  // Of the call that asked for it.
        EXPECT_EQ(handler["name"], "size") << each;
        EXPECT_EQ(handler["kind"], 2) << each;
        EXPECT_EQ(each["kind"], 1) << each;
        EXPECT_EQ(each["attributes"]["amalgam.bytes"].get<std::string>(), "1048576") << each;
    }
    for (const auto& each : found["spans"])
        EXPECT_EQ(each["status"], each["name"] == "fails" ? 2 : 0) << each;
}

TEST_F(otlp, streams_of_values_are_below_their_handlers_and_batches_below_them) {
    const auto found = trace("take", "streams");
    ASSERT_EQ(found["code"], 0) << found;
    std::map<std::string, nlohmann::json> by_id;
    for (const auto& each : found["spans"])
        by_id[each["id"]] = each;
    std::map<std::string, int> streams, values_of_batches, batches;
    for (const auto& each : found["spans"]) {
        const std::string kind = each["attributes"]["amalgam.kind"], name = each["name"];
        if (kind != "stream" && kind != "values") continue;
        const int values = std::stoi(each["attributes"]["amalgam.values"].get<std::string>());
        ASSERT_EQ(by_id.count(each["parent"]), 1u) << each;
        const auto& above = by_id[each["parent"]];
        EXPECT_EQ(above["name"], name) << each;
        EXPECT_EQ(above["trace"], each["trace"]);
        EXPECT_EQ(above["attributes"]["amalgam.kind"], kind == "stream" ? "handler" : "stream");
        (kind == "stream" ? streams : values_of_batches)[name] += values;
        batches[name] += kind == "values";
    }
    const std::map<std::string, int> whole{{"add_up", 100}, {"count", 100}};
    EXPECT_EQ(streams, whole);
    EXPECT_EQ(values_of_batches, whole);
    EXPECT_GE(batches["count"], 2);
    EXPECT_GE(batches["add_up"], 2);
}

TEST_F(otlp, every_span_of_many_batches_is_sent_once) {
    const auto found = trace("take", "calls 1000", "OTEL_EXPORTER_OTLP_HEADERS='x-key=a%20b'");
    EXPECT_EQ(found["code"], 0) << output(found);
    EXPECT_EQ(found["spans"].size(), 4'000u);
    EXPECT_TRUE(contains(output(found), "4000 spans of 1 processes")) << output(found);
    EXPECT_GE(found["requests"], 8) << output(found);
}

TEST_F(otlp, a_busy_collector_is_asked_again_when_it_says) {
    const auto found = trace("busy", "calls 2");
    EXPECT_EQ(found["code"], 0) << output(found);
    EXPECT_EQ(found["spans"].size(), 8u) << output(found);
    EXPECT_GE(found["first_pause"], 1.0);
}

TEST_F(otlp, a_connection_that_is_shut_is_opened_again) {
    const auto found = trace("shut", "calls 2");
    EXPECT_EQ(found["code"], 0) << output(found);
    EXPECT_EQ(found["spans"].size(), 8u) << output(found);
}

TEST_F(otlp, what_a_collector_does_not_take_is_counted_and_told) {
    const struct {
        const char* mode;
        const char* why;
    } cases[] = {{"slow", "8 were not taken: no answer within 300 ms"},
                 {"garbage", "8 were not taken: no answer"},
                 {"flood", "8 were not taken: no answer"},
                 {"gone", "8 were not taken: no answer"},
                 {"refuse", "8 were not taken: it answered 400: no \\x1b[31mspans here"}};
    for (const auto& each : cases) {
        const auto found = trace(each.mode, "calls 2", "OTEL_EXPORTER_OTLP_TIMEOUT=300");
        EXPECT_EQ(found["code"], 1) << each.mode << ": " << output(found);
        EXPECT_TRUE(contains(output(found), each.why)) << each.mode << ": " << output(found);
    }
    // This one leaves out a span of each request, and a slow program's spans may need two.
    const auto found = trace("partial", "calls 2", "OTEL_EXPORTER_OTLP_TIMEOUT=300");
    EXPECT_EQ(found["code"], 1) << output(found);
    EXPECT_TRUE(contains(output(found), std::to_string(found["requests"].get<int>()) +
                                            " were not taken: one too many"))
        << output(found);
}

TEST_F(otlp, the_code_of_the_program_counts_first) {
    EXPECT_EQ(trace("gone", "killed", "OTEL_EXPORTER_OTLP_TIMEOUT=300")["code"], 128 + 9);
}

TEST_F(otlp, https_believes_the_authority_that_is_named) {
    const auto found =
        trace("tls", "calls 2", "OTEL_EXPORTER_OTLP_CERTIFICATE=" + folder.with("ca.pem"));
    EXPECT_EQ(found["code"], 0) << output(found);
    EXPECT_EQ(found["spans"].size(), 8u);
    const auto stranger = trace("tls", "calls 2", "OTEL_EXPORTER_OTLP_TIMEOUT=300");
    EXPECT_EQ(stranger["code"], 1);
    EXPECT_EQ(stranger["spans"].size(), 0u);
    EXPECT_TRUE(contains(output(stranger), "signed by no authority that is trusted here"))
        << output(stranger);
}

TEST_F(otlp, recorded_folders_are_sent_later_and_written_to_a_file_if_asked) {
    const std::string records = folder.with("records");
    std::filesystem::create_directory(records);
    ASSERT_EQ(run_tool("AMALGAM_TRACE=" + records + " " + program, "calls 2").code, 0);
    const auto found = collect("take", "trace --otlp {} --from " + records);
    EXPECT_EQ(found["code"], 0) << output(found);
    EXPECT_EQ(found["spans"].size(), 8u) << output(found);
    const std::string file = folder.with("t.json");
    const auto both = collect("take", "trace -o " + file + " --otlp {} --from " + records);
    EXPECT_EQ(both["code"], 0) << output(both);
    EXPECT_TRUE(std::filesystem::exists(file));
    const auto nothing = collect("take", "trace --otlp {} --from " + folder.path());
    EXPECT_EQ(nothing["code"], 1) << output(nothing);
    EXPECT_TRUE(contains(output(nothing), "nothing was recorded; expected")) << output(nothing);
}

TEST_F(otlp, an_address_that_is_none_is_told) {
    for (const char* wrong : {"localhost:4318", "http://", "http://a:0", "http://[::1", "ftp://a",
                              "http://a:4318x", "http://u@a"}) {
        const outcome ran =
            run_tool(tool, std::string("trace --otlp '") + wrong + "' -- " + program + " exit 0");
        EXPECT_EQ(ran.code, 1) << wrong << ": " << ran.output;
        EXPECT_TRUE(contains(ran.output, "expected http://HOST:PORT")) << ran.output;
    }
}

}  // namespace
}  // namespace amalgam
