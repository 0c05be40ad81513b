// tasks: a plain thread that parks, and who unparks it.
#include <gtest/gtest.h>

#include <amalgam/tasks/parking.hpp>

#include "model_check/checker/checker.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

/// One park, one unpark, after which the waiter is gone.
result of_one_park(const std::function<void(execution&, waiter&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        int& data = run.make<int>(0);
        auto& waits = run.make<waiter*>(new waiter);
        run.name(&waits->state_, "state");
        if (weaken) weaken(run, *waits);
        run.thread([&] {
            waits->park();
            require(data == 1, "an old value");
            delete waits;
        });
        run.thread([&] {
            data = 1;
            waits->unpark();
        });
    });
}

TEST(parking, what_was_written_before_unpark_is_seen_after_park) {
    const result found = of_one_park();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(parking, a_relaxed_permit_is_found) {
    const result found = of_one_park(
        [](execution& run, waiter& waits) { run.weaken(waits.state_, act::change, relaxed); });
    EXPECT_NE(found.failure, "");
}

TEST(parking, a_deadline_and_a_permit_are_told_apart) {
    const result found = explore([&](execution& run) {
        int& data = run.make<int>(0);
        auto& waits = run.make<waiter>();
        run.thread([&] {
            if (!waits.park_until(waiter::time_point(std::chrono::nanoseconds(1)))) waits.park();
            require(data == 1, "an old value");
        });
        run.thread([&] {
            data = 1;
            waits.unpark();
        });
    });
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

}  // namespace
}  // namespace amalgam::model
