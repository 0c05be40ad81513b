#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/looping_scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

const execution_stream_options driven{.driven = true};

/// run() is a function; without one, a loop over the pools in order.
class loop_of final : public looping_scheduler {
public:
    using body = std::function<void(loop_of&, scheduler_loop&)>;
    explicit loop_of(std::vector<pool*> pools, body what = usual)
        : pools_(std::move(pools)), what_(std::move(what)) {}

    static void usual(loop_of& self, scheduler_loop& loop) {
        while (!loop.should_stop()) {
            if (work_unit* const unit = self.next()) {
                loop.run(*unit);
                ++self.ran;
            } else {
                loop.idle();
            }
        }
    }
    void run(scheduler_loop& loop) override {
        ++calls;
        what_(*this, loop);
    }
    std::span<pool* const> pools() const noexcept override { return pools_; }

    std::atomic<int> ran{0};
    std::atomic<int> calls{0};

private:
    std::vector<pool*> pools_;
    body what_;
};

TEST(looping_scheduler, gets_control_back_after_each_unit) {
    fifo_pool mine;
    std::string order;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine},
                                                      [&](loop_of& self, scheduler_loop& loop) {
                                                          while (!loop.should_stop()) {
                                                              work_unit* const unit = self.next();
                                                              if (unit == nullptr) break;
                                                              order += '<';
                                                              loop.run(*unit);
                                                              order += '>';
                                                          }
                                                      }),
                            driven);
    post(mine, [&] {
        order += 'a';
        this_task::yield();
        order += 'A';
    });
    post(mine, [&] { order += 'b'; });
    post_tasklet(mine, [&] { order += 't'; });
    stream.run_ready();
    EXPECT_EQ(order, "<a><b><t><A>");
}

TEST(looping_scheduler, runs_units_out_of_turn_from_any_of_its_pools) {
    fifo_pool first, second;
    std::string order;
    const auto last_first = [&](loop_of&, scheduler_loop& loop) {
        std::vector<work_unit*> held;
        while (work_unit* const unit = first.pop())
            held.push_back(unit);
        while (work_unit* const unit = second.pop())
            held.push_back(unit);
        for (; !held.empty(); held.pop_back())
            loop.run(*held.back());
    };
    execution_stream stream(
        std::make_unique<loop_of>(std::vector<pool*>{&first, &second}, last_first), driven);
    for (const char each : {'a', 'b'})
        post(first, [&order, each] { order += each; });
    post(second, [&] { order += 'c'; });
    stream.run_ready();
    EXPECT_EQ(order, "cba");
}

TEST(looping_scheduler, serves_joins_parks_and_wakes_on_a_thread) {
    fifo_pool mine;
    std::atomic<int> done{0};
    {
        execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}));
        event go;
        std::vector<ult> all;
        for (int i = 0; i < 50; ++i) {
            all.push_back(spawn(stream, [&] {
                go.wait();
                ult inner = spawn([&] { this_task::yield(); });
                inner.join();
                ++done;
            }));
        }
        go.set();
        for (ult& each : all)
            each.join();
    }
    EXPECT_EQ(done, 50);
}

TEST(looping_scheduler, has_timers_and_pollers_through_idle) {
    shared_fifo_pool mine;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}));
    ult sleeper = spawn(mine, [] { this_task::sleep_for(std::chrono::milliseconds(2)); });
    sleeper.join();
}

TEST(looping_scheduler, checks_events_itself_while_units_run) {
    manual_clock time;
    fifo_pool mine;
    bool slept = false;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine},
                                                      [](loop_of& self, scheduler_loop& loop) {
                                                          while (work_unit* unit = self.next())
                                                              loop.run(*unit);
                                                      }),
                            {.clock = &time, .driven = true});
    post(mine, [&] {
        this_task::sleep_for(std::chrono::seconds(1));
        slept = true;
    });
    post(mine, [&] {
        time.advance(std::chrono::seconds(2));
        while (!slept)
            this_task::yield();
    });
    stream.run_ready();
    EXPECT_TRUE(slept);
}

TEST(looping_scheduler, that_returns_early_is_run_again) {
    fifo_pool mine;
    auto order = std::make_unique<loop_of>(std::vector<pool*>{&mine},
                                           [](loop_of& self, scheduler_loop& loop) {
                                               if (work_unit* unit = self.next()) loop.run(*unit);
                                           });
    const loop_of& seen = *order;
    execution_stream stream(std::move(order));
    for (int i = 0; i < 3; ++i)
        spawn(stream, [] {}).join();
    EXPECT_GE(seen.calls, 3);
}

TEST(looping_scheduler, that_does_nothing_leaves_its_work_to_stop) {
    fifo_pool mine;
    bool ran = false;
    {
        execution_stream stream(
            std::make_unique<loop_of>(std::vector<pool*>{&mine}, [](loop_of&, scheduler_loop&) {}));
        post(stream, [&] { ran = true; });
    }
    EXPECT_TRUE(ran);
}

TEST(looping_scheduler, that_throws_is_replaced_by_its_next) {
    fifo_pool mine;
    auto order = std::make_unique<loop_of>(
        std::vector<pool*>{&mine},
        [](loop_of&, scheduler_loop&) { throw std::runtime_error("no idea what to run"); });
    const loop_of& seen = *order;
    execution_stream stream(std::move(order));
    spawn(stream, [] {}).join();
    spawn(stream, [] {}).join();
    EXPECT_EQ(seen.calls, 1);
}

TEST(looping_scheduler, cannot_run_a_unit_that_is_queued) {
    shared_fifo_pool mine;
    std::string why;
    int ran = 0;
    const auto twice = [&](loop_of&, scheduler_loop& loop) {
        work_unit* const unit = mine.pop();
        if (unit == nullptr) return;
        mine.push(*unit);
        try {
            loop.run(*unit);
        } catch (const error& refused) {
            EXPECT_EQ(refused.code().code, errc::invalid);
            why = refused.what();
        }
        ASSERT_TRUE(mine.remove(*unit));
        loop.run(*unit);
    };
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}, twice), driven);
    post(mine, [&] { ++ran; });
    stream.run_ready();
    EXPECT_NE(why.find("still queued"), std::string::npos) << why;
    EXPECT_EQ(ran, 1);
}

TEST(looping_scheduler, cannot_run_a_ult_that_is_parked) {
    shared_fifo_pool mine;
    event go;
    std::string why;
    bool waits = false, ended = false;
    const auto again = [&](loop_of&, scheduler_loop& loop) {
        while (work_unit* const unit = mine.pop()) {
            loop.run(*unit);
            if (!std::exchange(waits, false)) continue;
            const error refused = error_of([&] { loop.run(*unit); });
            EXPECT_EQ(refused.code(), errc::invalid);
            why = refused.what();
            go.set();
        }
    };
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}, again), driven);
    post(mine, [&] {
        waits = true;
        go.wait();
        ended = true;
    });
    stream.run_ready();
    EXPECT_NE(why.find("is parked"), std::string::npos) << why;
    EXPECT_TRUE(ended);
}

TEST(looping_scheduler, refuses_its_loop_to_tasklets_timers_and_pollers) {
    shared_fifo_pool mine;
    manual_clock time;
    scheduler_loop* leaked = nullptr;
    int refused = 0, ran = 0;
    const auto leaks = [&](loop_of& self, scheduler_loop& loop) {
        leaked = &loop;
        loop_of::usual(self, loop);
        leaked = nullptr;
    };
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}, leaks),
                            {.clock = &time, .driven = true});
    const auto misuse = [&] {
        refused += code_of([&] { leaked->idle(); }) == errc::invalid;
        refused += code_of([&] { leaked->check_events(); }) == errc::invalid;
        if (work_unit* const other = mine.pop()) {
            refused += code_of([&] { leaked->run(*other); }) == errc::invalid;
            mine.push(*other);
        }
    };
    post_tasklet(mine, misuse);
    post_tasklet(mine, [&] { ++ran; });
    stream.run_ready();
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(ran, 1);
    struct alarm : timer {
        alarm(execution_stream& where, std::function<void()> what)
            : timer(where, [](timer& self) noexcept { static_cast<alarm&>(self).act(); }),
              act(std::move(what)) {}
        std::function<void()> act;
    } due(stream, misuse);
    due.arm(time.now());
    stream.run_ready();
    EXPECT_EQ(refused, 5);
}

TEST(looping_scheduler, refuses_its_loop_to_ults_and_other_threads) {
    fifo_pool mine;
    scheduler_loop* leaked = nullptr;
    int refused = 0;
    const auto leaks = [&](loop_of& self, scheduler_loop& loop) {
        if (leaked != nullptr) return;
        leaked = &loop;
        std::thread([&] {
            try {
                loop.idle();
            } catch (const error&) {
                ++refused;
            }
        }).join();
        loop_of::usual(self, loop);
    };
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}, leaks), driven);
    post(mine, [&] {
        try {
            leaked->check_events();
        } catch (const error&) {
            ++refused;
        }
    });
    stream.run_ready();
    EXPECT_EQ(refused, 2);
}

TEST(looping_scheduler, lets_ults_yield_to_each_other) {
    fifo_pool mine;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}), driven);
    std::string order;
    ult third = spawn(mine, [&] { order += '3'; });
    post(mine, [&] { order += '2'; });
    ult first = spawn(mine, [&] {
        order += '1';
        EXPECT_FALSE(this_task::yield_to(third)) << "it has run already";
    });
    stream.run_ready();
    EXPECT_EQ(order, "321");
    ult later = spawn(mine, [&] { order += 'b'; });
    post(mine, [] {});
    stream.run_ready();
    post(mine, [&] {
        ult other = spawn([&] { order += 'd'; });
        spawn([&] { order += 'e'; }).detach();
        EXPECT_TRUE(this_task::yield_to(other));
        other.join();
    });
    stream.run_ready();
    EXPECT_EQ(order, "321bde");
}

TEST(looping_scheduler, on_a_driven_stream_keeps_to_what_was_asked_for) {
    fifo_pool mine;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}), driven);
    int ran = 0;
    for (int i = 0; i < 10; ++i)
        post(mine, [&] { ++ran; });
    EXPECT_EQ(stream.run_ready(3), 3u);
    EXPECT_EQ(ran, 3);
    stream.run_ready();
    EXPECT_EQ(ran, 10);
}

TEST(looping_scheduler, may_be_posted_and_ends_when_it_is_done) {
    fifo_pool below, above;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&below}), driven);
    std::string order;
    post_tasklet(above, [&] {
        post(above, [&] {
            order += 'x';
            this_task::yield();
            order += 'y';
        });
    });
    future<void> ended =
        post_scheduler(below, std::make_unique<loop_of>(std::vector<pool*>{&above}));
    post(below, [&] { order += 'b'; });
    stream.run_ready();
    EXPECT_EQ(order, "xyb");
    EXPECT_TRUE(ended.ready());
}

TEST(looping_scheduler, may_be_posted_to_a_stream_with_a_thread) {
    for (const bool looping_below : {false, true}) {
        shared_fifo_pool below, above;
        execution_stream stream(
            looping_below
                ? std::unique_ptr<scheduler>(std::make_unique<loop_of>(std::vector<pool*>{&below}))
                : std::make_unique<basic_scheduler>(std::vector<pool*>{&below}));
        std::atomic<int> ran{0};
        future<void> ended;
        {
            ult poster = spawn(stream, [&] {
                ended =
                    post_scheduler(below, std::make_unique<loop_of>(std::vector<pool*>{&above}));
            });
            poster.join();
        }
        ended.get();
        spawn(stream, [&] { ++ran; }).join();
        EXPECT_EQ(ran, 1);
    }
}

TEST(looping_scheduler, that_was_posted_and_throws_says_so_by_its_future) {
    fifo_pool below, above;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{&below}), driven);
    bool ran = false;
    const auto throws = [&](loop_of&, scheduler_loop&) {
        post(above, [&] { ran = true; });
        throw std::runtime_error("lost my way");
    };
    future<void> ended =
        post_scheduler(below, std::make_unique<loop_of>(std::vector<pool*>{&above}, throws));
    stream.run_ready();
    EXPECT_TRUE(ran);
    EXPECT_THROW(ended.get(), std::runtime_error);
}

TEST(looping_scheduler, is_replaced_by_another_thread_and_by_its_own_ult) {
    shared_fifo_pool mine;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&mine}));
    stream.set_scheduler(std::make_unique<loop_of>(std::vector<pool*>{&mine}));
    spawn(stream, [&] {
        stream.set_scheduler(std::make_unique<basic_scheduler>(std::vector<pool*>{&mine}));
    }).join();
    spawn(stream, [&] {
        stream.set_scheduler(std::make_unique<loop_of>(std::vector<pool*>{&mine}));
    }).join();
    spawn(stream, [] {}).join();
}

TEST(looping_scheduler, is_replaced_below_one_that_was_posted) {
    shared_fifo_pool below;
    execution_stream stream(std::make_unique<loop_of>(std::vector<pool*>{&below}));
    struct until_told final : pool_scheduler {
        until_told(std::vector<pool*> which, std::atomic<bool>& end)
            : pool_scheduler(std::move(which)), told(end) {}
        work_unit* next() noexcept override { return nullptr; }
        bool done() const noexcept override { return told; }
        std::atomic<bool>& told;
    };
    std::atomic<bool> told{false};
    shared_fifo_pool above;
    future<void> ended =
        post_scheduler(below, std::make_unique<until_told>(std::vector<pool*>{&above}, told));
    stream.set_scheduler(std::make_unique<basic_scheduler>(std::vector<pool*>{&below}));
    told = true;
    stream.wake();
    ended.get();
    spawn(stream, [] {}).join();
}

TEST(looping_scheduler, of_a_primary_stream_returns_before_the_stack_of_the_loop_goes) {
    struct counted {
        explicit counted(int& of) : alive(of) { ++alive; }
        ~counted() { --alive; }
        int& alive;
    };
    int alive = 0;
    int ran = 0;
    fifo_pool mine;
    const auto counts = [&](loop_of& self, scheduler_loop& loop) {
        const counted on_the_loops_stack(alive);
        loop_of::usual(self, loop);
    };
    {
        execution_stream here(std::make_unique<loop_of>(std::vector<pool*>{&mine}, counts),
                              {.primary = true});
        for (int i = 0; i < 3; ++i)
            spawn(here, [&] { ++ran; }).join();
        this_task::yield();
        post(here, [&] { ++ran; });
    }
    EXPECT_EQ(ran, 4);
    EXPECT_EQ(alive, 0);
}

TEST(looping_scheduler, is_shared_by_streams_that_steal) {
    std::vector<shared_fifo_pool> pools(2);
    std::atomic<int> ran{0};
    {
        execution_stream one(std::make_unique<loop_of>(std::vector<pool*>{&pools[0], &pools[1]}));
        execution_stream two(std::make_unique<loop_of>(std::vector<pool*>{&pools[1], &pools[0]}));
        std::vector<ult> all;
        for (int i = 0; i < 200; ++i) {
            all.push_back(spawn(pools[i % 2], [&] {
                this_task::yield();
                ++ran;
            }));
        }
        for (ult& each : all)
            each.join();
    }
    EXPECT_EQ(ran, 200);
}

}  // namespace
}  // namespace amalgam
