#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/otlp_trace.hpp>

#include "temp_folder.hpp"

// Records in children of fork(), as recorder_test does: a process asks the environment once.

namespace amalgam {
namespace {

using namespace detail;

template <typename Work>
void record_in_child(const temp_folder& folder, Work work) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::setenv("AMALGAM_TRACE", folder.path().c_str(), 1);
        if (!start_recording()) ::_exit(1);
        work();
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    ASSERT_EQ(how, 0);
}

span_record span(span_kind kind, unsigned char id, unsigned char parent = 0) {
    span_record made{.kind = kind, .begin = 1000, .middle = 1500, .end = 3000};
    made.trace.fill(std::byte{7});
    made.id.fill(std::byte{id});
    made.parent.fill(std::byte{parent});
    made.name = trace_text("sum");
    return made;
}

std::vector<nlohmann::json> spans_of(const otlp_batch& batch) {
    const auto all = nlohmann::json::parse(batch.json);
    return all["resourceSpans"][0]["scopeSpans"][0]["spans"].get<std::vector<nlohmann::json>>();
}

std::map<std::string, std::string> resource_of(const otlp_batch& batch) {
    std::map<std::string, std::string> found;
    const auto all = nlohmann::json::parse(batch.json);
    for (const auto& each : all["resourceSpans"][0]["resource"]["attributes"]) {
        const auto& value = each["value"];
        const std::string text =
            value.contains("stringValue") ? value["stringValue"] : value["intValue"];
        EXPECT_TRUE(found.emplace(each["key"], text).second) << each;
    }
    return found;
}

TEST(otlp_reader, a_handler_is_below_its_call_and_above_what_it_calls) {
    const temp_folder folder;
    record_in_child(folder, [] {
        record_span(span(span_kind::call, 2, 1));
        record_span(span(span_kind::handler, 1));
        record_span(span(span_kind::call, 1));
    });
    otlp_reader reader({folder.path()});
    const auto spans = spans_of(reader.next());
    ASSERT_EQ(spans.size(), 3u);
    const auto& below = spans[0];
    const auto& handler = spans[1];
    const auto& call = spans[2];
    EXPECT_EQ(call["spanId"], "0101010101010101");
    EXPECT_FALSE(call.contains("parentSpanId"));
    EXPECT_EQ(handler["parentSpanId"], call["spanId"]);
    EXPECT_NE(handler["spanId"], call["spanId"]);
    EXPECT_EQ(below["parentSpanId"], handler["spanId"]);
    EXPECT_EQ(call["kind"], 3);
    EXPECT_EQ(handler["kind"], 2);
    EXPECT_EQ(call["traceId"], "07070707070707070707070707070707");
    const auto nanoseconds = [](const nlohmann::json& time) {
        return std::stoull(time.get<std::string>());
    };
    EXPECT_EQ(nanoseconds(call["endTimeUnixNano"]) - nanoseconds(call["startTimeUnixNano"]), 2000u);
    EXPECT_GT(nanoseconds(call["startTimeUnixNano"]), 1'500'000'000'000'000'000u);
    EXPECT_EQ(reader.next().spans, 0u);
}

TEST(otlp_reader, a_handler_whose_call_came_without_a_trace_has_nothing_above_it) {
    const temp_folder folder;
    record_in_child(folder, [] { record_span(span(span_kind::handler, 1, 1)); });
    EXPECT_FALSE(spans_of(otlp_reader({folder.path()}).next()).at(0).contains("parentSpanId"));
}

TEST(otlp_reader, each_span_is_given_once_in_batches_while_the_file_grows) {
    const temp_folder folder;
    int go[2];
    int told[2];
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::setenv("AMALGAM_TRACE", folder.path().c_str(), 1);
        start_recording();
        for (int round = 0; round < 3; ++round) {
            for (int i = 0; i < 3'000; ++i)  // More than a chunk.
                record_span(span(span_kind::call, 1));
            char c = 0;
            if (::write(told[1], "x", 1) != 1 || ::read(go[0], &c, 1) != 1) break;
        }
        ::_exit(0);
    }
    ::close(go[0]);
    ::close(told[1]);
    otlp_reader reader({folder.path()}, {.most_spans = 1'000});
    for (char c = 0; ::read(told[0], &c, 1) == 1;) {
        std::size_t spans = 0;
        for (otlp_batch batch; (batch = reader.next()).spans != 0; spans += batch.spans)
            EXPECT_LE(batch.spans, 1'000u);
        EXPECT_EQ(spans, 3'000u);
        EXPECT_EQ(::write(go[1], "x", 1), 1);
    }
    ::close(go[1]);
    ::close(told[0]);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(reader.processes(), 1u);
    EXPECT_EQ(reader.dropped(), 0u);
}

TEST(otlp_reader, waits_of_a_handlers_ULT_are_events_of_its_span) {
    const temp_folder folder;
    record_in_child(folder, [] {
        const int unit = 0;
        const std::uint32_t reply = trace_text("rpc reply");
        span_record one = span(span_kind::handler, 1);
        record_unit(1, &unit, 0, 0);
        one.begin = one.middle = trace_time();
        record_unit(3, &unit, 0, reply);
        record_unit(4, &unit, 0, 0);
        record_unit(1, &unit, 0, 0);
        one.end = trace_time();
        record_span(one);
        record_unit(5, &unit, 0, 0);
        record_span(span(span_kind::handler, 2));  // Of no unit.
    });
    const auto spans = spans_of(otlp_reader({folder.path()}).next());
    ASSERT_EQ(spans.size(), 2u);
    ASSERT_EQ(spans[0]["events"].size(), 2u) << spans[0];
    EXPECT_EQ(spans[0]["events"][0]["name"], "runs");
    EXPECT_EQ(spans[0]["events"][1]["name"], "waits for rpc reply");
    EXPECT_EQ(spans[0]["events"][1]["attributes"][0]["key"], "amalgam.waited_ns");
    EXPECT_EQ(spans[1]["events"].size(), 1u) << spans[1];
}

TEST(otlp_reader, a_failed_call_has_the_status_of_an_error) {
    const temp_folder folder;
    record_in_child(folder, [] {
        span_record failed = span(span_kind::call, 1);
        failed.code = errc::timed_out;
        record_span(failed);
        record_span(span(span_kind::call, 2));
    });
    const auto spans = spans_of(otlp_reader({folder.path()}).next());
    EXPECT_EQ(spans[0]["status"]["code"], 2);
    EXPECT_EQ(spans[0]["status"]["message"], "timed_out");
    EXPECT_FALSE(spans[1].contains("status"));
}

TEST(otlp_reader, a_process_is_described_by_its_own_environment_first) {
    const temp_folder folder;
    record_in_child(folder, [] { record_span(span(span_kind::call, 1)); });
    EXPECT_EQ(resource_of(otlp_reader({folder.path()}).next())["service.name"],
              "core_recorder_test");
    auto told = resource_of(otlp_reader({folder.path()}, {.service_name = "shop"}).next());
    EXPECT_EQ(told["service.name"], "shop");
    EXPECT_FALSE(told["host.name"].empty());
    EXPECT_GT(std::stoi(told["process.pid"]), 0);

    const temp_folder other;
    ::setenv("OTEL_SERVICE_NAME", "orders", 1);
    ::setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=north%2Cwest, process.pid=0,,=x,zone=again", 1);
    record_in_child(other, [] { record_span(span(span_kind::call, 1)); });
    ::unsetenv("OTEL_SERVICE_NAME");
    ::unsetenv("OTEL_RESOURCE_ATTRIBUTES");
    told = resource_of(otlp_reader({other.path()}, {.service_name = "shop"}).next());
    EXPECT_EQ(told["service.name"], "orders");
    EXPECT_EQ(told["zone"], "north,west");
    EXPECT_NE(told["process.pid"], "0");
}

TEST(otlp_reader, spans_without_a_trace_are_left_out_and_files_without_records_told) {
    const temp_folder folder;
    record_in_child(folder, [] { record_span({.begin = 1, .end = 2}); });
    folder.with("1-1.amtrace", "short");
    otlp_reader reader({folder.path()});
    EXPECT_EQ(reader.next().spans, 0u);
    ASSERT_EQ(reader.unreadable().size(), 1u);
    EXPECT_NE(reader.unreadable()[0].find("1-1.amtrace: it is too short"), std::string::npos);
    EXPECT_THROW(otlp_reader({folder.with("none")}).next(), error);
}

}  // namespace
}  // namespace amalgam
