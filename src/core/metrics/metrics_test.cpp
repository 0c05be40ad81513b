#include <atomic>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/status.hpp>

#include "emulated.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

const metric_description calls{"calls_total", "Calls.", metric_kind::counter};
const metric_description queued{"queued_bytes", "Bytes that wait.", metric_kind::gauge, "bytes"};
const metric_description took{"took_seconds", "Time.", metric_kind::latency, "seconds"};

TEST(metric_registry, a_snapshot_reads_what_is_registered_and_nothing_else) {
    metric_registry all;
    double now = 3;
    latency_histogram times;
    times.record(std::chrono::microseconds(5));
    auto one = all.add(queued, {{"peer", "b"}}, [&] { return now; });
    auto two = all.add(took, {}, times);
    {
        auto gone = all.add(calls, {}, [] { return 1.0; });
        EXPECT_EQ(all.snapshot().value("calls_total"), 1);
    }
    now = 4;
    const metric_snapshot read = all.snapshot();
    ASSERT_EQ(read.families.size(), 2u);
    EXPECT_EQ(read.families[0].what, queued);
    EXPECT_EQ(read.value("queued_bytes", {{"peer", "b"}}), 4);
    ASSERT_NE(read.find("took_seconds"), nullptr);
    EXPECT_EQ(read.find("took_seconds")->samples[0].latency.count(), 1u);
    EXPECT_EQ(read.find("calls_total"), nullptr);
}

TEST(metric_registry, the_same_name_and_labels_add_up_and_others_do_not) {
    metric_registry all;
    auto one = all.add(calls, {{"a", "1"}, {"b", "2"}}, [] { return 1.0; });
    auto two = all.add(calls, {{"b", "2"}, {"a", "1"}}, [] { return 2.0; });
    auto other = all.add(calls, {{"a", "1"}, {"b", "3"}}, [] { return 5.0; });
    const metric_snapshot read = all.snapshot();
    EXPECT_EQ(read.value("calls_total", {{"b", "2"}, {"a", "1"}}), 3);
    EXPECT_EQ(read.value("calls_total", {{"a", "1"}, {"b", "3"}}), 5);
}

TEST(metric_registry, two_registries_know_nothing_of_each_other) {
    metric_registry one, two;
    auto in_one = one.add(calls, {}, [] { return 1.0; });
    EXPECT_TRUE(two.snapshot().families.empty());
}

TEST(metric_registry, a_callback_that_throws_is_counted_and_the_others_are_read) {
    metric_registry all;
    auto bad = all.add(calls, {}, []() -> double { throw std::runtime_error("no"); });
    auto worse = all.add_group([](metric_writer&) { throw 7; });
    auto clash = all.add_group([](metric_writer& into) {
        into.add({"queued_bytes", "", metric_kind::latency}, {}, 1.0);
    });
    auto good = all.add(queued, {}, [] { return 2.0; });
    const metric_snapshot read = all.snapshot();
    EXPECT_EQ(read.failed, 3u);
    EXPECT_EQ(read.value("queued_bytes"), 2);
}

TEST(metric_registry, what_exceeds_the_limits_is_left_out_and_told) {
    metric_registry all({.label_sets = 3, .samples = 5});
    auto many = all.add_group([](metric_writer& into) {
        for (int i = 0; i < 10; ++i) {
            into.add(calls, {{"peer", std::to_string(i)}}, 1);
            into.add(calls, {{"peer", std::to_string(i)}}, 1);
            into.add(queued, {{"peer", std::to_string(i)}}, 1);
        }
    });
    const metric_snapshot read = all.snapshot();
    EXPECT_EQ(read.find("calls_total")->samples.size(), 3u);
    EXPECT_EQ(read.value("calls_total", {{"peer", "2"}}), 2);
    EXPECT_EQ(read.find("queued_bytes")->samples.size(), 2u);
    EXPECT_EQ(read.left_out, 7u + 7u + 8u);
    EXPECT_NE(to_text(read).find("22 numbers above the limits were left out"), std::string::npos);
}

TEST(metric_registry, names_that_are_none_are_refused_with_an_example) {
    metric_registry all;
    const auto why = [&](metric_description what, std::vector<metric_label> labels) {
        return std::string(error_of([&] {
                               (void)all.add(std::move(what), std::move(labels),
                                             [] { return 1.0; });
                           }).what());
    };
    EXPECT_NE(why({"rpc.calls", ""}, {}).find("\"rpc.calls\" is not a metric's name"),
              std::string::npos);
    EXPECT_NE(why({"", ""}, {}).find("example: "), std::string::npos);
    EXPECT_NE(why({"calls", "", metric_kind::counter}, {}).find("example: calls_total"),
              std::string::npos);
    EXPECT_NE(why({"took", "", metric_kind::latency}, {}).find("example: took_seconds"),
              std::string::npos);
    EXPECT_NE(why(queued, {{"__name__", "x"}}).find("is not a label's name"), std::string::npos);
    EXPECT_NE(why(queued, {{"a", "x"}, {"a", "y"}}).find("is given twice"), std::string::npos);
    EXPECT_EQ(error_of([&] { (void)all.add(queued, {}, std::function<double()>()); }).code(),
              errc::invalid);
    EXPECT_EQ(error_of([&] { (void)all.add_group({}); }).code(), errc::invalid);
    EXPECT_TRUE(all.snapshot().families.empty());
}

TEST(metric_registry, a_registration_may_outlive_it) {
    auto all = std::make_unique<metric_registry>();
    auto one = all->add(queued, {}, [] { return 1.0; });
    all.reset();
    one.reset();
}

TEST(metric_registry, a_registration_that_has_ended_is_not_being_read_any_more) {
    for (int round = 0; round < 10; ++round) {
        metric_registry all;
        std::atomic<bool> reads{false}, ends{false}, has_read{false};
        auto one = all.add(queued, {}, [&] {
            reads = true;
            while (!ends)
                std::this_thread::yield();
            for (int i = 0; i < 5; ++i)  // Time for a reset that does not wait.
                std::this_thread::yield();
            has_read = true;
            return 1.0;
        });
        std::thread looks([&] { EXPECT_EQ(all.snapshot().families.size(), 1u); });
        while (!reads)
            std::this_thread::yield();
        ends = true;
        one.reset();
        EXPECT_TRUE(has_read);
        looks.join();
    }
}

TEST(metric_registry,
     a_child_forked_while_another_thread_reads_neither_hangs_nor_shows_its_parent) {
    metric_registry all;
    std::atomic<bool> reads{false}, ends{false};
    auto one = all.add(queued, {}, [&] {
        reads = true;
        while (!ends)
            std::this_thread::yield();
        return 1.0;
    });
    std::thread looks([&] { EXPECT_EQ(all.snapshot().value("queued_bytes"), 1); });
    while (!reads)
        std::this_thread::yield();
    const ::pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);  // If it hangs, it fails.
        const bool empty = all.snapshot().families.empty();
        auto fresh = all.add(calls, {}, [] { return 1.0; });
        one.reset();
        ::_exit(empty ? 0 : 1);
    }
    int how = -1;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    ends = true;
    looks.join();
    EXPECT_EQ(how, 0);
}

metric_snapshot three_of_a_kind() {
    metric_writer all;
    all.add(calls, {{"procedure", "a\"b\\\n\x1b\xff"}}, 7);
    all.add(queued, {}, 1.5);
    latency_histogram times;
    times.record(std::chrono::nanoseconds(300));
    times.record(std::chrono::milliseconds(2));
    all.add(took, {{"procedure", "sum"}}, times.snapshot());
    return all.take();
}

TEST(metrics_text, people_see_a_line_a_number) {
    const std::string text = to_text(three_of_a_kind());
    EXPECT_NE(text.find("queued_bytes 1.5\n"), std::string::npos) << text;
    EXPECT_NE(text.find("calls_total{procedure=\"a\\\"b\\\\\\n\\\\x1b\xef\xbf\xbd\"} 7\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("took_seconds{procedure=\"sum\"} count 2 mean 1.0 ms p50 295 ns"),
              std::string::npos)
        << text;
    EXPECT_EQ(to_text(three_of_a_kind(), "queued"), "queued_bytes 1.5\n");
}

TEST(metrics_text, json_has_all_and_parses_whatever_the_names_are) {
    const std::string text = to_json(three_of_a_kind(), "_total");
    EXPECT_EQ(text,
              "{\"metrics\":[{\"name\":\"calls_total\",\"kind\":\"counter\",\"unit\":\"\","
              "\"help\":\"Calls.\",\"samples\":[{\"labels\":{\"procedure\":"
              "\"a\\\"b\\\\\\n\\u001b\xef\xbf\xbd\"},\"value\":7.0}]}],\"left_out\":0,"
              "\"failed\":0}");
}

TEST(metrics_text, prometheus_gets_cumulative_buckets_with_sum_and_count) {
    const std::string text = to_prometheus(three_of_a_kind());
    for (const char* line :
         {"# HELP took_seconds Time.\n", "# TYPE took_seconds histogram\n",
          "took_seconds_bucket{procedure=\"sum\",le=\"2.56e-07\"} 0\n",
          "took_seconds_bucket{procedure=\"sum\",le=\"5.12e-07\"} 1\n",
          "took_seconds_bucket{procedure=\"sum\",le=\"+Inf\"} 2\n",
          "took_seconds_sum{procedure=\"sum\"} 0.0020003\n",
          "took_seconds_count{procedure=\"sum\"} 2\n", "# TYPE calls_total counter\n",
          "# TYPE queued_bytes gauge\nqueued_bytes 1.5\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
    }
}

TEST(metrics_text, prometheus_reads_what_a_peer_made_up) {
    metric_snapshot all;
    metric_family& one = all.families.emplace_back();
    one.what = {"9\nevil 1", "It \\ says \"no\"\nevil 2", metric_kind::gauge};
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinite = std::numeric_limits<double>::infinity();
    one.samples = {{{{"a\x1b=", "b"}}, nan}, {{{"", "c"}}, infinite}, {{}, -infinite}};
    // Quotes are escaped in labels only: promtool refuses them in a help.
    EXPECT_EQ(to_prometheus(all),
              "# HELP _9_evil_1 It \\\\ says \"no\"\\nevil 2\n"
              "# TYPE _9_evil_1 gauge\n"
              "_9_evil_1{a__=\"b\"} NaN\n"
              "_9_evil_1{_=\"c\"} +Inf\n"
              "_9_evil_1 -Inf\n");
    EXPECT_EQ(to_text(all).find('\x1b'), std::string::npos);
}

TEST(process_metrics, are_those_of_this_process) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/stat";
    metric_writer all;
    write_process_metrics(all);
    const metric_snapshot read = all.take();
    EXPECT_GE(read.value("process_threads"), 1);
    EXPECT_GE(read.value("process_open_fds"), 3);
    EXPECT_GT(read.value("process_resident_memory_bytes"), 1 << 20);
    EXPECT_NE(read.find("process_cpu_seconds_total"), nullptr);
}

}  // namespace
}  // namespace amalgam
