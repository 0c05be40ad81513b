#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/latency_histogram.hpp>

namespace amalgam {
namespace {

using std::chrono::nanoseconds;

TEST(latency_buckets, follow_each_other_without_gap_and_hold_what_they_say) {
    for (std::size_t i = 0; i < latency_buckets::count; ++i) {
        const std::uint64_t first = latency_buckets::first_of(i);
        const std::uint64_t last = latency_buckets::first_of(i + 1) - 1;
        ASSERT_LE(first, last);
        ASSERT_EQ(latency_buckets::index_of(first), i);
        ASSERT_EQ(latency_buckets::index_of(last), i);
    }
    EXPECT_EQ(latency_buckets::first_of(latency_buckets::count), std::uint64_t{1} << 40);
    EXPECT_EQ(latency_buckets::index_of(UINT64_MAX), latency_buckets::count - 1);
}

TEST(latency_histogram, quantiles_are_within_the_stated_error) {
    std::mt19937_64 numbers(7);
    std::lognormal_distribution<double> times(10, 3);  // 22 us, with a long tail.
    latency_histogram recorded;
    std::vector<std::int64_t> exact;
    for (int i = 0; i < 50'000; ++i) {
        exact.push_back(static_cast<std::int64_t>(std::min(times(numbers), 1e12)));
        recorded.record(nanoseconds(exact.back()));
    }
    std::sort(exact.begin(), exact.end());
    const latency_distribution all = recorded.snapshot();
    EXPECT_EQ(all.count(), exact.size());
    for (const double q : {0.0, 0.5, 0.9, 0.99, 0.999, 1.0}) {
        const auto rank = static_cast<std::size_t>(
            std::max(1.0, std::ceil(q * static_cast<double>(exact.size()))));
        const auto right = static_cast<double>(exact[rank - 1]);
        const auto told = static_cast<double>(nanoseconds(all.quantile(q)).count());
        EXPECT_LE(std::abs(told - right), right / 32 + 1) << q;
    }
}

TEST(latency_histogram, merged_ones_are_as_one) {
    latency_histogram one, two, both;
    for (int i = 0; i < 1000; ++i) {
        (i % 3 == 0 ? one : two).record(nanoseconds(i * i));
        both.record(nanoseconds(i * i));
    }
    latency_distribution sum = one.snapshot();
    sum.merge(two.snapshot());
    EXPECT_EQ(sum, both.snapshot());
    EXPECT_EQ(sum.mean(), nanoseconds(332833));
}

TEST(latency_histogram, threads_lose_no_record) {
    latency_histogram recorded;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 10'000; ++i)
                recorded.record(nanoseconds(100));
        });
    }
    for (auto& one : threads)
        one.join();
    EXPECT_EQ(recorded.snapshot().count(), 40'000u);
    EXPECT_EQ(recorded.snapshot().total_ns, 4'000'000u);
}

TEST(latency_histogram, what_is_below_a_power_of_two_is_counted_exactly) {
    latency_histogram recorded;
    for (const int each : {1, 31, 32, 1023, 1024, 5000})
        recorded.record(nanoseconds(each));
    const latency_distribution all = recorded.snapshot();
    EXPECT_EQ(all.count_below(5), 2u);
    EXPECT_EQ(all.count_below(10), 4u);
    EXPECT_EQ(all.count_below(11), 5u);
    EXPECT_EQ(all.count_below(60), 6u);
}

TEST(latency_histogram, none_times_before_the_start_and_endless_ones_are_counted) {
    latency_histogram recorded;
    EXPECT_EQ(recorded.snapshot().quantile(0.5), nanoseconds(0));
    EXPECT_EQ(recorded.snapshot().mean(), nanoseconds(0));
    recorded.record(nanoseconds(-5));
    recorded.record(std::chrono::hours(10));
    const latency_distribution all = recorded.snapshot();
    EXPECT_EQ(all.count(), 2u);
    EXPECT_EQ(all.quantile(0.5), nanoseconds(0));
    EXPECT_GE(all.quantile(1), std::chrono::minutes(17));
}

TEST(latency_distribution, of_a_peer_that_sends_too_many_buckets_is_bounded) {
    latency_distribution theirs{std::vector<std::uint64_t>(100'000, 1), 5}, mine;
    EXPECT_GT(theirs.quantile(1), nanoseconds(0));
    mine.merge(theirs);
    EXPECT_EQ(mine.counts.size(), latency_buckets::count);
}

static_assert(sizeof(latency_histogram) <= 4800, "a procedure has one of these");

}  // namespace
}  // namespace amalgam
