// tasks: the mutex of ULTs and threads; ULTs that are posted for a loop, and turned away once
// nothing is left for them.
#include <gtest/gtest.h>

#include <amalgam/tasks/mutex.hpp>

#include "model_check/checker/checker.hpp"
#include "tasks/parallel/latecomers.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

/// Two threads lock in turn. The last one frees it.
result of_mutex(const std::function<void(execution&, mutex&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        struct guarded {
            mutex lock;
            int turns = 0;
        };
        auto& what = *run.make<guarded*>(new guarded);
        run.name(&what.lock.state_, "state");
        run.name(&what.lock.waiting_.busy_, "lock of the list");
        if (weaken) weaken(run, what.lock);
        for (int i = 0; i < 2; ++i) {
            run.thread([&what] {
                what.lock.lock();
                const bool is_last = ++what.turns == 2;
                what.lock.unlock();
                if (is_last) delete &what;
            });
        }
    });
}

TEST(mutex_model, one_at_a_time_holds_it_and_the_last_may_free_it) {
    const result found = of_mutex();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(mutex_model, weaker_orders_are_found) {
    for (const auto order : {acquire, release}) {
        EXPECT_NE(of_mutex([order](execution& run, mutex& what) {
                      run.weaken(what.state_, act::change, order);
                  }).failure,
                  "");
    }
    EXPECT_NE(of_mutex([](execution& run, mutex& what) {
                  run.weaken_at(&what.waiting_.busy_, act::store, relaxed);
              }).failure,
              "");
}

struct a_loop {
    /// What those who take part use, until all have left.
    struct shared {
        detail::posted_tasks tasks;
        int done = 0;
    };
    std::unique_ptr<shared> of = std::make_unique<shared>();
    detail::latecomers& late = detail::latecomers::of(of->tasks);
};

/// A loop ends while the ULT that was posted for it begins: that takes part, or is turned away.
result of_latecomer(const std::function<void(execution&, a_loop&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        detail::latecomers::in_vain_.store(0);
        auto& loop = run.make<a_loop>();
        require(loop.late.expect_one(), "it is turned away at once");
        auto& place = run.make<detail::latecomers::place>(loop.late);
        run.name(&loop.late.state_, "state");
        run.name(&loop.of->tasks.open_, "open");
        if (weaken) weaken(run, loop);
        run.thread([&loop] {
            loop.late.turn_away();
            loop.of->tasks.wait();
            ++loop.of->done;
            loop.late.release();
            loop.of.reset();
        });
        run.thread([&loop, &place] {
            if (!place.let_in()) return;
            ++loop.of->done;
            place.leave();
        });
    });
}

TEST(latecomers_model, a_loop_outlives_who_takes_part_and_those_turned_away_outlive_it) {
    const result found = of_latecomer();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(latecomers_model, weaker_orders_are_found) {
    for (const auto order : {acquire, release}) {
        EXPECT_NE(of_latecomer([order](execution& run, a_loop& loop) {
                      run.weaken(loop.of->tasks.open_, act::change, order);
                  }).failure,
                  "");
        EXPECT_NE(of_latecomer([order](execution& run, a_loop& loop) {
                      run.weaken(loop.late.state_, act::change, order);
                  }).failure,
                  "");
    }
}

}  // namespace
}  // namespace amalgam::model
