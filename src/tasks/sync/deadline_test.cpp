#include <chrono>
#include <limits>
#include <mutex>

#include <gtest/gtest.h>

#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

// Durations that overflow any clock.
namespace amalgam {
namespace {

using namespace std::chrono_literals;
using point = std::chrono::steady_clock::time_point;
using hours_of_int = std::chrono::duration<int, std::ratio<3600>>;
using seconds_of_double = std::chrono::duration<double>;
using hours_of_float = std::chrono::duration<float, std::ratio<3600>>;
using ages = std::chrono::duration<std::int64_t, std::ratio<1'000'000'000>>;

/// `check` for each duration that has already passed.
template <typename Check>
void for_each_time_that_is_over(Check check) {
    check(0ns);
    check(-1ns);
    check(std::chrono::nanoseconds::min());
    check(std::chrono::milliseconds::min());
    check(std::chrono::hours::min());
    check(hours_of_int::min());
    check(ages::min());
    check(seconds_of_double(-1e300));
    check(hours_of_float(-std::numeric_limits<float>::infinity()));
    check(seconds_of_double(std::numeric_limits<double>::quiet_NaN()));
}

/// The same for durations that never pass.
template <typename Check>
void for_each_time_without_end(Check check) {
    check(std::chrono::nanoseconds::max());
    check(std::chrono::milliseconds::max());
    check(std::chrono::hours::max());
    check(ages::max());
    check(seconds_of_double(1e300));
    check(hours_of_float(std::numeric_limits<float>::infinity()));
}

TEST(deadline, of_a_time_without_end_is_the_end_of_time) {
    const point now = point(1h);
    for_each_time_without_end(
        [&](auto time) { EXPECT_EQ(detail::deadline_after(time, now), point::max()); });
    for (const point at : {now, point(-1ns), point(-1h), point::min()}) {
        EXPECT_EQ(detail::deadline_after(hours_of_int(1), at), at + 1h);
        EXPECT_EQ(detail::deadline_after(ages::max(), at), point::max());
    }
    EXPECT_EQ(detail::deadline_after(seconds_of_double(1e-12), now), now + 1ns) << "not too early";
}

TEST(deadline, of_a_negative_time_or_none_is_now) {
    for (const point now : {point(), point(1h), point(-1h)}) {
        for_each_time_that_is_over(
            [&](auto time) { EXPECT_EQ(detail::deadline_after(time, now), now); });
    }
}

TEST(deadline, that_is_over_ends_every_wait_at_once) {
    execution_stream here;
    mutex locked;
    event never;
    condition_variable nobody;
    const std::lock_guard hold(locked);
    const auto waits = [&] {
        for_each_time_that_is_over([&](auto time) {
            this_task::sleep_for(time);
            EXPECT_FALSE(locked.try_lock_for(time));
            EXPECT_FALSE(never.wait_for(time));
            mutex mine;
            std::unique_lock held(mine);
            EXPECT_EQ(nobody.wait_for(held, time), std::cv_status::timeout);
        });
    };
    waits();
    spawn(here, waits).join();
}

TEST(deadline, without_end_is_waited_for_until_what_was_waited_for_comes) {
    execution_stream here;
    for_each_time_without_end([&](auto time) {
        event comes;
        ult waits = spawn(here, [&] { EXPECT_TRUE(comes.wait_for(time)); });
        comes.set();
        waits.join();
        mutex free;
        EXPECT_TRUE(free.try_lock_for(time));
        free.unlock();
    });
}

}  // namespace
}  // namespace amalgam
