#include <chrono>

#include <gtest/gtest.h>

#include <amalgam/core/merged_metrics.hpp>

namespace amalgam {
namespace {

metric_snapshot of_one(double calls, std::chrono::nanoseconds took) {
    latency_histogram times;
    times.record(took);
    metric_writer into;
    into.add({"calls_total", "Calls.", metric_kind::counter}, {{"procedure", "sum"}}, calls);
    into.add({"call_seconds", "Times.", metric_kind::latency}, {}, times.snapshot());
    return into.take();
}

TEST(merged_metrics, have_the_labels_of_their_part) {
    const metric_snapshot all =
        merge_metrics({{{{"process", "G1"}}, of_one(3, std::chrono::microseconds(1))},
                       {{{"process", "G2"}}, of_one(4, std::chrono::microseconds(9))}});
    EXPECT_EQ(all.value("calls_total", {{"procedure", "sum"}, {"process", "G1"}}), 3);
    EXPECT_EQ(all.value("calls_total", {{"procedure", "sum"}, {"process", "G2"}}), 4);
    ASSERT_NE(all.find("call_seconds"), nullptr);
    EXPECT_EQ(all.find("call_seconds")->samples.size(), 2u);
}

TEST(merged_metrics, of_parts_with_the_same_labels_add_up) {
    const metric_snapshot all = merge_metrics({{{}, of_one(3, std::chrono::microseconds(1))},
                                               {{}, of_one(4, std::chrono::microseconds(9))}});
    EXPECT_EQ(all.value("calls_total", {{"procedure", "sum"}}), 7);
    EXPECT_EQ(all.find("call_seconds")->samples.at(0).latency.count(), 2u);
}

TEST(merged_metrics, a_label_of_the_part_replaces_one_of_that_name) {
    metric_writer into;
    into.add({"open", "Open."}, {{"process", "says G9"}}, 1);
    const metric_snapshot all = merge_metrics({{{{"process", "G1"}}, into.take()}});
    EXPECT_EQ(all.value("open", {{"process", "G1"}}), 1);
    EXPECT_EQ(all.failed, 0u);
}

TEST(merged_metrics, a_name_of_two_kinds_is_counted_as_failed) {
    metric_writer into;
    into.add({"calls_total", "Calls."}, {}, 1);  // A gauge.
    metric_snapshot other = into.take();
    other.left_out = 2;
    const metric_snapshot all = merge_metrics(
        {{{{"process", "G1"}}, of_one(3, {})}, {{{"process", "G2"}}, std::move(other)}});
    EXPECT_EQ(all.failed, 1u);
    EXPECT_EQ(all.left_out, 2u);
    EXPECT_EQ(all.find("calls_total")->samples.size(), 1u);
}

}  // namespace
}  // namespace amalgam
