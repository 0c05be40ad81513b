#include "directory/membership/suspicions.hpp"

#include <gtest/gtest.h>

#include "directory/limits.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

suspicions::time_point at(std::chrono::milliseconds time) {
    return suspicions::time_point{} + time;
}

TEST(suspicions, each_confirmation_of_another_server_makes_one_shorter_and_its_second_does_not) {
    suspicions all(1s, 6s);
    EXPECT_TRUE(all.suspect(7, 1, at(0s)));
    EXPECT_FALSE(all.suspect(7, 1, at(1s)));
    clock::duration before = all.lasts(0, 10);
    EXPECT_EQ(before, 6s);
    for (const std::uint64_t by : {20u, 21u, 22u}) {
        all.confirm(7, by);
        all.confirm(7, by);
        const clock::duration now = all.lasts(all.confirmations(7), 10);
        EXPECT_LT(now, before);
        EXPECT_FALSE(all.is_over(7, 10, at(std::chrono::milliseconds(now / 1ms - 1))));
        EXPECT_TRUE(all.is_over(7, 10, at(std::chrono::milliseconds(now / 1ms + 1))));
        before = now;
    }
    EXPECT_EQ(before, 1s);
    all.confirm(7, 23);
    EXPECT_EQ(all.confirmations(7), limits::suspicion_confirmations);
}

TEST(suspicions, fewer_servers_have_to_confirm_where_there_are_fewer) {
    const suspicions all(1s, 6s);
    EXPECT_EQ(all.lasts(0, 0), 1s);
    EXPECT_EQ(all.lasts(0, 1), 6s);
    EXPECT_EQ(all.lasts(1, 1), 1s);
    EXPECT_EQ(all.lasts(2, 2), 1s);
    EXPECT_GT(all.lasts(2, 3), 1s);
}

TEST(suspicions, a_later_version_refutes_one_and_may_be_suspected_anew) {
    suspicions all(1s, 6s);
    all.suspect(7, 3, at(0s));
    all.confirm(7, 20);
    all.refute(7, 3);
    EXPECT_TRUE(all.holds(7));
    all.refute(7, 4);
    EXPECT_FALSE(all.holds(7));
    EXPECT_FALSE(all.is_over(7, 0, at(1h)));
    EXPECT_TRUE(all.suspect(7, 4, at(5s)));
    EXPECT_EQ(all.confirmations(7), 0u);
    EXPECT_FALSE(all.is_over(7, 1, at(6s)));
    EXPECT_TRUE(all.suspect(7, 5, at(8s))) << "what was said of an earlier version counts no more";
    EXPECT_FALSE(all.is_over(7, 0, at(8500ms)));
    all.clear(7);
    EXPECT_FALSE(all.holds(7));
}

TEST(local_health, gives_others_more_time_the_more_was_missed_and_forgets_it) {
    local_health health;
    EXPECT_EQ(health.scaled(1s), 1s);
    health.better();
    EXPECT_EQ(health.scaled(1s), 1s);
    for (int i = 0; i < 20; ++i)
        health.worse();
    EXPECT_EQ(health.scaled(1s), 9s);
    for (int i = 0; i < 20; ++i)
        health.better();
    EXPECT_EQ(health.scaled(1s), 1s);
}

}  // namespace
}  // namespace amalgam::detail
