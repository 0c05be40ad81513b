#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/limited_log.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(limited_log, a_burst_is_let_through_then_one_a_second_and_the_rest_is_counted) {
    detail::log_limit limit;
    std::chrono::steady_clock::time_point now{1h};
    std::uint64_t more = 0, written = 0;
    for (int i = 0; i < 1000; ++i)
        written += limit.admits(now, more) ? 1 : 0;
    EXPECT_EQ(written, detail::log_limit::burst);
    EXPECT_EQ(more, 0u);
    now += 1s;
    EXPECT_TRUE(limit.admits(now, more));
    EXPECT_EQ(more, 1000 - detail::log_limit::burst);
    EXPECT_FALSE(limit.admits(now, more));
    now += 1h;
    for (std::uint64_t i = 0; i < detail::log_limit::burst; ++i)
        EXPECT_TRUE(limit.admits(now, more));
    EXPECT_FALSE(limit.admits(now, more));
}

/// In its own process: other tests check the default logger's first use.
[[noreturn]] void say_often_and_once() {
    std::vector<std::string> lines;
    default_logger().set_sink([&](const log_record& one) { lines.push_back(to_text(one)); });
    for (int i = 0; i < 100; ++i)
        limited_log(log_level::error, "test", "often said", {{"i", i}});
    const std::size_t often = lines.size();
    limited_log(log_level::error, "test", "said once");
    const bool right = often >= detail::log_limit::burst && often < 100 &&
                       lines.front() == "often said i=0" && lines.back() == "said once";
    std::_Exit(right ? 0 : 1);
}

TEST(limited_log, each_message_has_a_limit_of_its_own) {
    EXPECT_EXIT(say_often_and_once(), testing::ExitedWithCode(0), "");
}

/// In its own process too. Logs more messages than the table has places, from several threads; then
/// one of them a second later, which reports the suppressed lines.
[[noreturn]] void say_from_everywhere() {
    std::vector<std::string> lines;
    default_logger().set_sink([&](const log_record& one) { lines.push_back(to_text(one)); });
    static char many[300][16];  // Each has its own address, as literals do.
    for (auto& each : many)
        std::snprintf(each, sizeof each, "line %d", static_cast<int>(&each - &many[0]));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([] {
            for (int i = 0; i < 100; ++i) {
                for (const auto& each : many)
                    limited_log(log_level::error, "test", each);
            }
        });
    }
    for (auto& each : threads)
        each.join();
    const bool right =
        lines.size() < 300 * detail::log_limit::burst;  // Those beyond the table share one.
    const std::string said = lines.front().substr(0, lines.front().find(' ', 5));
    const auto more = [&] { return lines.back().find(said + " and_more=") == 0; };
    while (!more())
        limited_log(log_level::error, "test", many[std::atoi(said.c_str() + 5)]);
    std::_Exit(right ? 0 : 1);
}

TEST(limited_log, holds_a_bounded_table_for_any_number_of_threads_and_says_what_it_left_out) {
    EXPECT_EXIT(say_from_everywhere(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace amalgam
