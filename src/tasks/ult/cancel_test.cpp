#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

errc end_of(ult& task) {
    try {
        task.join();
    } catch (const error& why) {
        return why.code().code;
    }
    return errc::ok;
}

struct cancel : testing::Test {
    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};

    /// Runs `body` until it parks, cancels it, and returns how it ended.
    errc canceled_in(std::function<void()> body) {
        bool unwound = false;
        struct notice {
            bool& unwound;
            ~notice() { unwound = true; }
        };
        ult task = spawn(stream, [&] {
            const notice at_end{unwound};
            body();
        });
        stream.run_ready();
        EXPECT_FALSE(unwound);
        task.cancel();
        stream.run_ready();
        EXPECT_TRUE(unwound);
        return end_of(task);
    }
};

TEST_F(cancel, ends_every_kind_of_wait) {
    event happens;
    EXPECT_EQ(canceled_in([&] { happens.wait(); }), errc::canceled);
    EXPECT_EQ(canceled_in([&] { happens.wait_for(1h); }), errc::canceled);
    EXPECT_EQ(canceled_in([] { this_task::sleep_for(1h); }), errc::canceled);
    promise<int> brings;
    auto value = brings.get_future();
    EXPECT_EQ(canceled_in([&] { value.get(); }), errc::canceled);
    EXPECT_EQ(stream.next_timer(), std::nullopt);
    happens.set();  // the list of waiters is empty
    brings.set_value(1);
    EXPECT_EQ(value.get(), 1);
}

TEST_F(cancel, in_a_condition_variable_leaves_with_the_mutex_locked) {
    mutex guard;
    condition_variable changed;
    bool was_locked = false;
    EXPECT_EQ(canceled_in([&] {
                  std::unique_lock hold(guard);
                  try {
                      changed.wait(hold);
                  } catch (const error&) {
                      was_locked = hold.owns_lock() && !guard.try_lock();
                      throw;
                  }
              }),
              errc::canceled);
    EXPECT_TRUE(was_locked);
    EXPECT_TRUE(guard.try_lock());
}

TEST_F(cancel, before_it_began_means_that_it_never_runs) {
    auto held = std::make_shared<int>(1);
    bool ran = false;
    ult task = spawn(stream, [&ran, held] { ran = true; });
    EXPECT_EQ(held.use_count(), 2);
    task.cancel();
    stream.run_ready();
    EXPECT_FALSE(ran);
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_EQ(end_of(task), errc::canceled);
}

TEST_F(cancel, is_seen_at_the_next_yield_or_wait_and_only_once) {
    std::string order;
    event never;
    ult task = spawn(stream, [&] {
        order += 'a';
        try {
            this_task::yield();
        } catch (const error&) {
            order += 'c';
        }
        this_task::yield();
        order += 'b';
        try {
            never.wait();
        } catch (const error&) {
            order += 'd';
        }
    });
    stream.run_ready(1);
    task.cancel();
    stream.run_ready();
    EXPECT_EQ(order, "acb");
    task.cancel();
    stream.run_ready();
    EXPECT_EQ(order, "acbd");
    task.cancel();  // it has ended: no effect
    task.join();
    EXPECT_THROW(task.cancel(), error);
}

TEST_F(cancel, is_seen_by_a_yield_to_another_ult_ready_or_not) {
    event never;
    ult parked = spawn(stream, [&] { never.wait(); });
    stream.run_ready();
    for (const bool ready : {true, false}) {
        ult cancels;
        bool went_on = false;
        ult task = spawn(stream, [&] {
            this_task::yield_to(ready ? cancels : parked);
            went_on = true;
        });
        cancels = spawn(stream, [&] { task.cancel(); });
        stream.run_ready();
        EXPECT_EQ(end_of(task), errc::canceled);
        EXPECT_FALSE(went_on);
    }
    never.set();
    stream.run_ready();
}

struct unwinding : cancel {
    event first, never;
    std::string order;

    /// A noexcept destructor that waits and yields.
    struct waits_at_end {
        event& what;
        std::string& order;
        ~waits_at_end() {
            what.wait();
            this_task::yield();
            this_task::sleep_for(1h);
            order += 'd';
        }
    };
    void let_end() {
        first.set();
        stream.run_ready();
        time.advance(1h);
        stream.run_ready();
    }
};

TEST_F(unwinding, by_a_cancel_waits_in_peace_and_keeps_another_cancel_for_later) {
    ult task = spawn(stream, [&] {
        try {
            const waits_at_end at_end{first, order};
            never.wait();
        } catch (const error&) {
            order += 'c';
        }
        try {
            never.wait();
        } catch (const error&) {
            order += 'C';
        }
    });
    stream.run_ready();
    task.cancel();
    stream.run_ready();
    task.cancel();  // its destructor is parked
    stream.run_ready();
    EXPECT_EQ(order, "");
    let_end();
    EXPECT_EQ(order, "dcC");
    task.join();
}

TEST_F(unwinding, by_any_exception_waits_in_peace_when_the_cancel_came_before_the_wait) {
    ult task = spawn(stream, [&] {
        const waits_at_end at_end{first, order};
        this_task::exit();
    });
    ult other = spawn(stream, [&] {
        const waits_at_end at_end{first, order};
        task.cancel();
        this_task::exit();
    });
    ult third = spawn(stream, [&] {
        third.cancel();
        const waits_at_end at_end{first, order};
        throw std::runtime_error("it fails");
    });
    stream.run_ready();
    EXPECT_EQ(order, "");
    let_end();
    EXPECT_EQ(order, "ddd");
    task.join();
    other.join();
    EXPECT_THROW(third.join(), std::runtime_error);
}

TEST_F(unwinding, counts_for_each_ult_on_its_own) {
    ult unwinds = spawn(stream, [&] {
        const waits_at_end at_end{first, order};
        this_task::exit();
    });
    ult task = spawn(stream, [&] { never.wait(); });
    stream.run_ready();
    task.cancel();
    stream.run_ready();
    EXPECT_EQ(end_of(task), errc::canceled);
    let_end();
    unwinds.join();
}

TEST_F(unwinding, has_ended_in_a_catch_block_which_can_be_canceled) {
    ult task = spawn(stream, [&] {
        try {
            throw std::runtime_error("it fails");
        } catch (const std::runtime_error&) {
            never.wait();
        }
    });
    stream.run_ready();
    task.cancel();
    stream.run_ready();
    EXPECT_EQ(end_of(task), errc::canceled);
}

TEST_F(unwinding, is_not_needed_for_ult_local_values_to_wait_in_peace) {
    struct holder {
        std::unique_ptr<waits_at_end> what;
    };
    ult_local<holder> mine;
    ult task = spawn(stream, [&] { mine->what.reset(new waits_at_end{first, order}); });
    ult cancels_itself = spawn(stream, [&] {
        mine->what.reset(new waits_at_end{first, order});
        cancels_itself.cancel();
    });
    stream.run_ready();
    task.cancel();
    stream.run_ready();
    EXPECT_EQ(order, "");
    let_end();
    EXPECT_EQ(order, "dd");
    task.join();
    cancels_itself.join();
}

TEST_F(cancel, does_not_take_back_what_was_given) {
    event happens;
    ult task = spawn(stream, [&] {
        happens.wait();
        this_task::exit();
    });
    stream.run_ready();
    happens.set();
    task.cancel();
    stream.run_ready();
    task.join();
}

TEST_F(cancel, leaves_the_wait_for_a_mutex_alone) {
    mutex guard;
    guard.lock();
    bool got = false;
    ult task = spawn(stream, [&] {
        const std::lock_guard hold(guard);
        got = true;
    });
    stream.run_ready();
    task.cancel();
    stream.run_ready();
    EXPECT_FALSE(got);
    guard.unlock();
    stream.run_ready();
    EXPECT_TRUE(got);
    task.join();
}

TEST(exit, unwinds_the_stack_and_is_a_normal_end) {
    execution_stream stream;
    std::string order;
    struct notice {
        std::string& order;
        ~notice() { order += 'u'; }
    };
    ult task = spawn(stream, [&] {
        const notice at_end{order};
        this_task::exit();
    });
    task.join();
    EXPECT_EQ(order, "u");
    EXPECT_THROW(this_task::exit(), error);
}

/// Cancels race with parks, wake-ups and migration; each wait ends once, served or canceled.
void race(bool stealing, unsigned seed) {
    constexpr int ults = 8, turns = 150;
    work_stealing_pool pools[2];
    std::vector<std::unique_ptr<execution_stream>> streams;
    for (int i = 0; i < 2; ++i) {
        streams.push_back(
            stealing ? std::make_unique<execution_stream>(std::make_unique<work_stealing_scheduler>(
                           std::vector<pool*>{&pools[i], &pools[1 - i]}))
                     : std::make_unique<execution_stream>());
    }
    std::atomic<int> begun = 0, served = 0, canceled = 0;
    mutex guard;
    condition_variable changed;
    long tickets = 0;
    std::vector<ult> tasks;
    for (int i = 0; i < ults; ++i) {
        tasks.push_back(spawn(*streams[static_cast<std::size_t>(i % 2)], [&] {
            ++begun;
            for (int turn = 0; turn < turns; ++turn) {
                try {
                    std::unique_lock hold(guard);
                    changed.wait(hold, [&] { return tickets > 0; });
                    --tickets;
                    ++served;
                } catch (const error&) {
                    ++canceled;
                }
            }
        }));
    }
    std::mt19937 random(seed);
    int given = 0;
    while (begun < ults)
        std::this_thread::yield();
    while (served + canceled < ults * turns) {
        if (random() % 2 == 0) {
            tasks[random() % ults].cancel();
        } else if (given - served < 2) {  // most ULTs wait
            {
                const std::lock_guard hold(guard);
                ++tickets;
                ++given;
            }
            changed.notify_one();
        }
    }
    tasks.clear();
    EXPECT_EQ(served + tickets, given);
    EXPECT_GT(canceled, 0);
}

TEST_F(cancel, of_what_waits_in_a_pool_leaves_other_pools_and_what_is_ready_alone) {
    execution_stream other{execution_stream_options{.clock = &time, .driven = true}};
    event never, happened, happens;
    ult here = spawn(stream, [&] { never.wait(); });
    ult there = spawn(other, [&] { happens.wait(); });
    ult ready = spawn(stream, [&] {
        happened.wait();
        this_task::yield();
    });
    ult later = spawn(stream, [&] {
        const detail::cancel_later it;
        happens.wait();
    });
    stream.run_ready();
    other.run_ready();
    happened.set();
    ult unbegun = spawn(stream, [] {});
    stream.main_pool().cancel_waiting();
    happens.set();
    other.run_ready();
    stream.run_ready();
    EXPECT_EQ(end_of(here), errc::canceled);
    EXPECT_EQ(end_of(there), errc::ok);
    EXPECT_EQ(end_of(ready), errc::ok);
    EXPECT_EQ(end_of(later), errc::ok);
    EXPECT_EQ(end_of(unbegun), errc::ok);
}

TEST(cancel_from_elsewhere, of_what_waits_in_a_pool_never_meets_who_has_its_stack_next) {
    execution_stream canceled_here, kept_here;
    std::atomic<int> ended = 0, canceled = 0, wrong = 0;
    constexpr int turns = 400;
    const auto body = [&](std::atomic<int>& counts) {
        return [&] {
            try {
                this_task::sleep_for(std::chrono::microseconds(1));
            } catch (const error&) {
                ++counts;
            }
            ++ended;
        };
    };
    std::thread sends([&] {
        for (int i = 0; i < turns; ++i) {
            post(canceled_here, body(canceled));
            post(kept_here, body(wrong));
        }
    });
    while (ended < 2 * turns)
        canceled_here.main_pool().cancel_waiting();
    sends.join();
    EXPECT_EQ(wrong, 0);
}

TEST(cancel_from_elsewhere, makes_what_waits_ready_before_what_is_spawned_later) {
    execution_stream busy;
    for (int round = 0; round < 3000; ++round) {
        event never;
        bool unwound = false;
        ult waiting = spawn(busy, [&] {
            const auto note = [&](void*) { unwound = true; };
            const std::unique_ptr<void, decltype(note)> at_end(&unwound, note);
            never.wait();
        });
        spawn(busy, [] {}).join();  // it has parked
        waiting.cancel();
        bool was_first = false;
        spawn(busy, [&] { was_first = unwound; }).join();
        EXPECT_TRUE(was_first) << "in round " << round;
        EXPECT_EQ(end_of(waiting), errc::canceled);
    }
}

TEST(cancel_from_elsewhere, races_with_wake_ups_on_fixed_streams) {
    for (unsigned seed = 1; seed <= 3; ++seed)
        race(false, seed);
}

TEST(cancel_from_elsewhere, races_with_wake_ups_where_ults_are_stolen) {
    for (unsigned seed = 1; seed <= 3; ++seed)
        race(true, seed);
}

}  // namespace
}  // namespace amalgam
