#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/describe.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/slow_build.hpp"
#include "tasks/pools/untyped_testing.hpp"

namespace amalgam {
namespace {

template <typename Scheduler>
std::unique_ptr<scheduler> over(std::vector<pool*> pools) {
    return std::make_unique<Scheduler>(std::move(pools));
}
const execution_stream_options driven{.driven = true};

TEST(priority_scheduler, takes_from_its_first_pool_that_has_work) {
    fifo_pool urgent, patient;
    execution_stream stream(over<priority_scheduler>({&urgent, &patient}), driven);
    std::string order;
    post(patient, [&] { order += 'p'; });
    post(urgent, [&] { order += 'u'; });
    post(urgent, [&] { order += 'u'; });
    EXPECT_EQ(&stream.main_pool(), &urgent);
    stream.run_ready();
    EXPECT_EQ(order, "uup");
}

TEST(basic_scheduler, gives_each_of_its_pools_a_turn) {
    fifo_pool left, right;
    execution_stream stream(over<basic_scheduler>({&left, &right}), driven);
    std::string order;
    for (int i = 0; i < 3; ++i)
        post(left, [&] { order += 'l'; });
    for (int i = 0; i < 2; ++i)
        post(right, [&] { order += 'r'; });
    stream.run_ready();
    EXPECT_EQ(order, "lrlrl");
}

TEST(scheduler, whose_class_has_no_type_is_refused) {
    fifo_pool own;
    EXPECT_THROW(execution_stream(untyped_scheduler(own), driven), error);
    const std::unique_ptr<pool> untyped = untyped_pool();
    EXPECT_THROW(execution_stream(over<basic_scheduler>({untyped.get()}), driven), error);
    EXPECT_NE(describe(*untyped).find("a class without RTTI"), std::string::npos);
}

TEST(scheduler, without_pools_is_refused) {
    EXPECT_THROW(basic_scheduler({}), error);
    struct without final : scheduler {
        work_unit* next() noexcept override { return nullptr; }
        std::span<pool* const> pools() const noexcept override { return {}; }
    };
    EXPECT_THROW(execution_stream(std::make_unique<without>(), driven), error);
}

TEST(scheduler, with_a_pool_that_is_null_is_refused) {
    fifo_pool one;
    try {
        const basic_scheduler none({&one, nullptr});
        ADD_FAILURE() << "it was not refused";
    } catch (const error& why) {
        EXPECT_EQ(why.code().code, errc::invalid);
    }
}

TEST(work_stealing_scheduler, takes_its_own_work_first_and_keeps_what_it_steals) {
    work_stealing_pool mine, theirs;
    execution_stream me(over<work_stealing_scheduler>({&mine, &theirs}), driven);
    execution_stream they(over<work_stealing_scheduler>({&theirs, &mine}), driven);
    std::string order;
    post(theirs, [&] {
        order += 't';
        EXPECT_EQ(&this_task::home(), &mine);
        this_task::yield();
        order += 't';
    });
    post(mine, [&] { order += 'm'; });
    EXPECT_EQ(theirs.ults(), 1u);
    me.run_ready();
    EXPECT_EQ(order, "mtt");
    EXPECT_EQ(theirs.ults(), 0u);
    EXPECT_EQ(mine.ults(), 0u);
}

/// A user-defined scheduler: odd numbers first.
struct odd_first final : scheduler {
    explicit odd_first(pool& from) : pools_{&from} {}
    work_unit* next() noexcept override {
        while (work_unit* const unit = pools_[0]->pop())
            (unit->priority % 2 == 1 ? odd_ : even_).push_back(unit);
        std::vector<work_unit*>& of = odd_.empty() ? even_ : odd_;
        if (of.empty()) return nullptr;
        work_unit* const unit = of.front();
        of.erase(of.begin());
        return unit;
    }
    std::span<pool* const> pools() const noexcept override { return pools_; }

private:
    std::vector<pool*> pools_;
    std::vector<work_unit*> odd_, even_;
};

TEST(scheduler, may_be_the_users_own) {
    fifo_pool pool;
    execution_stream stream(std::make_unique<odd_first>(pool), driven);
    std::string order;
    for (std::uint8_t i = 0; i < 6; ++i)
        post(pool, [&order, i] { order += std::to_string(i); }, {.priority = i});
    stream.run_ready();
    EXPECT_EQ(order, "135024");
}

TEST(scheduler, that_holds_units_outside_its_pools_is_asked_until_it_has_no_more) {
    fifo_pool pool;
    execution_stream stream(std::make_unique<odd_first>(pool), driven);
    constexpr int many = conformance::slow_build ? 500 : 5000;  // Several batches.
    int ran = 0;
    for (int i = 0; i < many; ++i)
        post(pool, [&] { ++ran; });
    stream.run_ready();
    EXPECT_EQ(ran, many);
}

TEST(post_scheduler, with_nothing_to_do_is_done_at_once) {
    fifo_pool above;
    execution_stream stream(driven);
    std::string order;
    future<void> ended = post_scheduler(stream.main_pool(), over<basic_scheduler>({&above}));
    post(stream, [&] { order += 'b'; });
    EXPECT_THROW(post(above, [] {}), error);  // unserved before its turn
    EXPECT_FALSE(ended.ready());
    stream.run_ready();
    EXPECT_TRUE(ended.ready());
    EXPECT_EQ(order, "b");
    EXPECT_THROW((void)post_scheduler(stream.main_pool(), nullptr), error);
}

/// Ends on request.
struct told final : scheduler {
    told(std::vector<pool*> what, std::atomic<bool>& when) : pools_(std::move(what)), end(when) {}
    work_unit* next() noexcept override { return pools_[0]->pop(); }
    std::span<pool* const> pools() const noexcept override { return pools_; }
    bool done() const noexcept override { return end; }
    std::vector<pool*> pools_;
    std::atomic<bool>& end;
};

TEST(post_scheduler, stacks_to_any_depth_and_returns_to_the_one_below) {
    fifo_pool first, second;
    execution_stream stream(driven);
    std::atomic<bool> first_ends = false, second_ends = false;
    std::string order;
    auto one = post_scheduler(stream.main_pool(),
                              std::make_unique<told>(std::vector<pool*>{&first}, first_ends));
    stream.run_ready();
    post(stream, [&] { order += '0'; });
    post(first, [&] { order += '1'; });
    auto two = post_scheduler(
        first, std::make_unique<told>(std::vector<pool*>{&second, &first}, second_ends));
    stream.run_ready();
    EXPECT_EQ(order, "1");
    post(first, [&] { order += 'f'; });
    post(second, [&] { order += '2'; });
    stream.run_ready();
    EXPECT_EQ(order, "12");
    second_ends = true;
    stream.run_ready();
    EXPECT_EQ(order, "12f");
    EXPECT_TRUE(two.ready());
    EXPECT_FALSE(one.ready());
    EXPECT_TRUE(first.served());
    EXPECT_FALSE(second.served());
    first_ends = true;
    stream.run_ready();
    EXPECT_EQ(order, "12f0");
    EXPECT_TRUE(one.ready());
    EXPECT_FALSE(first.served());
}

TEST(post_scheduler, waits_for_the_parked_ults_of_its_pools) {
    fifo_pool above;
    execution_stream stream(driven);
    event go;
    std::string order;
    struct starts_with_work final : scheduler {
        explicit starts_with_work(pool& what) : pools_{&what} {}
        work_unit* next() noexcept override { return pools_[0]->pop(); }
        std::span<pool* const> pools() const noexcept override { return pools_; }
        bool done() const noexcept override { return started && scheduler::done(); }
        std::vector<pool*> pools_;
        bool started = false;
    };
    auto order_above = std::make_unique<starts_with_work>(above);
    starts_with_work& top = *order_above;
    auto ended = post_scheduler(stream.main_pool(), std::move(order_above));
    stream.run_ready();
    post(above, [&] {
        go.wait();
        order += 'a';
    });
    post(stream, [&] { order += 'b'; });
    top.started = true;
    stream.run_ready();
    EXPECT_EQ(order, "");
    EXPECT_FALSE(ended.ready());
    go.set();
    stream.run_ready();
    EXPECT_EQ(order, "ab");
    EXPECT_TRUE(ended.ready());
}

TEST(post_scheduler, leaves_timers_and_pollers_running_and_nothing_else) {
    fifo_pool above;
    execution_stream stream(driven);
    std::atomic<bool> ends = false;
    auto ended = post_scheduler(stream.main_pool(),
                                std::make_unique<told>(std::vector<pool*>{&above}, ends));
    stream.run_ready();
    struct noted final : timer {
        noted(execution_stream& where, int& count)
            : timer(where, [](timer& self) noexcept { ++static_cast<noted&>(self).fired; }),
              fired(count) {}
        int& fired;
    };
    struct counting final : poller {
        std::size_t poll() noexcept override { return polled++ == 0 ? 1 : 0; }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        int polled = 0;
    } source;
    int fired = 0, ran_below = 0;
    noted alarm(stream, fired);
    alarm.arm(stream.now());
    stream.add_poller(source);
    post(stream, [&] { ++ran_below; });
    stream.run_ready();
    EXPECT_EQ(fired, 1);
    EXPECT_GT(source.polled, 0);
    EXPECT_EQ(ran_below, 0);
    ends = true;
    stream.run_ready();
    EXPECT_EQ(ran_below, 1);
    EXPECT_TRUE(ended.ready());
    stream.remove_poller(source);
}

TEST(post_scheduler, fails_where_another_stream_serves_its_pool) {
    fifo_pool taken;
    execution_stream owner(over<basic_scheduler>({&taken}), driven);
    execution_stream stream(driven);
    fifo_pool free;
    auto refused = post_scheduler(stream.main_pool(), over<basic_scheduler>({&free, &taken}));
    stream.run_ready();
    EXPECT_EQ(refused.wait(), errc::invalid);
    EXPECT_FALSE(free.served());
    EXPECT_TRUE(taken.served());
}

TEST(post_scheduler, works_on_a_stream_with_a_thread) {
    execution_stream stream;
    for (int i = 0; i < 200; ++i) {
        shared_fifo_pool above;
        auto ended = post_scheduler(stream.main_pool(), over<basic_scheduler>({&above}));
        ended.get();
        EXPECT_FALSE(above.served());
    }
}

TEST(set_scheduler, changes_what_a_stream_runs_by_while_it_runs) {
    fifo_pool kept, added;
    execution_stream stream(over<basic_scheduler>({&kept}));
    std::atomic<bool> stop = false;
    std::atomic<int> turns = 0;
    ult busy = spawn(kept, [&] {
        while (!stop) {
            ++turns;
            this_task::yield();
        }
    });
    for (int i = 0; i < 50; ++i) {
        stream.set_scheduler(over<priority_scheduler>({&added, &kept}));
        EXPECT_EQ(&stream.main_pool(), &added);
        spawn(added, [] {}).join();
        stream.set_scheduler(over<basic_scheduler>({&kept}));
        EXPECT_FALSE(added.served());
    }
    const int before = turns;
    while (turns == before)
        std::this_thread::yield();
    stop = true;
}

TEST(set_scheduler, leaves_no_ult_behind) {
    fifo_pool old, fresh;
    execution_stream stream(over<basic_scheduler>({&old}), driven);
    event go;
    post(old, [&] { go.wait(); });
    stream.run_ready();
    EXPECT_THROW(stream.set_scheduler(over<basic_scheduler>({&fresh})), error);
    EXPECT_FALSE(fresh.served());
    EXPECT_TRUE(old.served());
    go.set();
    stream.run_ready();
    stream.set_scheduler(over<basic_scheduler>({&fresh}));
    EXPECT_TRUE(fresh.served());
    EXPECT_FALSE(old.served());
    EXPECT_THROW(stream.set_scheduler(nullptr), error);
}

TEST(set_scheduler, may_be_called_by_the_streams_own_ult) {
    fifo_pool added;
    execution_stream stream(driven);
    pool& own = stream.main_pool();
    std::string order;
    post(stream, [&] {
        EXPECT_THROW(stream.set_scheduler(over<basic_scheduler>({&added})), error);
        stream.set_scheduler(over<priority_scheduler>({&added, &own}));
        post(own, [&] { order += 'o'; });
        post(added, [&] { order += 'a'; });
        this_task::yield();
        order += 'y';
    });
    stream.run_ready();
    EXPECT_EQ(order, "aoy");
}

TEST(set_scheduler, of_a_stopped_stream_is_refused) {
    execution_stream stream;
    stream.stop();
    fifo_pool fresh;
    EXPECT_THROW(stream.set_scheduler(over<basic_scheduler>({&fresh})), error);
}

TEST(this_task, yield_to_goes_straight_to_another_ult) {
    execution_stream stream(driven);
    std::string order;
    ult last;
    post(stream, [&] {
        post(stream, [&] { order += 'x'; });
        last = spawn(stream, [&] { order += 'l'; });
        EXPECT_TRUE(this_task::yield_to(last));
        order += '1';
        EXPECT_FALSE(this_task::yield_to(last));  // it has ended
        order += '2';
    });
    stream.run_ready();
    EXPECT_EQ(order, "lx12");
    last.join();
}

TEST(this_task, yield_to_two_in_turn_keeps_a_third_out) {
    execution_stream stream(driven);
    std::string order;
    ult one, other;
    one = spawn(stream, [&] {
        for (int i = 0; i < 3; ++i) {
            order += '1';
            EXPECT_TRUE(this_task::yield_to(other));
        }
    });
    other = spawn(stream, [&] {
        for (int i = 0; i < 3; ++i) {
            order += '2';
            this_task::yield_to(one);
        }
    });
    post(stream, [&] { order += 'x'; });
    stream.run_ready();
    EXPECT_EQ(order, "121212x");
    one.join();
    other.join();
}

TEST(this_task, yield_to_one_that_is_parked_or_elsewhere_just_yields) {
    execution_stream stream(driven);
    execution_stream elsewhere(driven);
    event go;
    ult parked = spawn(stream, [&] { go.wait(); });
    ult away = spawn(elsewhere, [] {});
    int refused = 0;
    post(stream, [&] {
        refused += !this_task::yield_to(parked);
        refused += !this_task::yield_to(away);
        go.set();
    });
    stream.run_ready();
    EXPECT_EQ(refused, 2);
    elsewhere.run_ready();
    parked.join();
    away.join();
    EXPECT_THROW(this_task::yield_to(parked), error);
}

TEST(this_task, migrate_goes_on_in_another_pool) {
    execution_stream left, right;
    spawn(left, [&] {
        EXPECT_EQ(execution_stream::current(), &left);
        this_task::migrate(right.main_pool());
        EXPECT_EQ(execution_stream::current(), &right);
        EXPECT_EQ(&this_task::home(), &right.main_pool());
        this_task::yield();
        EXPECT_EQ(execution_stream::current(), &right);
    }).join();
    EXPECT_EQ(left.main_pool().ults(), 0u);
    EXPECT_EQ(right.main_pool().ults(), 0u);
}

TEST(ult, migrates_while_it_waits) {
    execution_stream left(driven), right(driven);
    event go;
    std::string order;
    ult parked = spawn(left, [&] {
        go.wait();
        order += execution_stream::current() == &right ? 'r' : 'l';
    });
    ult ready = spawn(left, [&] { order += execution_stream::current() == &right ? 'r' : 'l'; });
    ready.migrate(right.main_pool());
    left.run_ready();
    EXPECT_EQ(order, "");
    parked.migrate(right.main_pool());
    go.set();
    left.run_ready();
    EXPECT_EQ(left.main_pool().ults(), 0u);
    EXPECT_EQ(right.main_pool().ults(), 2u);
    right.run_ready();
    EXPECT_EQ(order, "rr");
    ready.join();
    parked.join();
    EXPECT_THROW(ready.migrate(right.main_pool()), error);
}

TEST(ult, migrates_to_and_fro_while_it_runs) {
    execution_stream left, right;
    std::atomic<bool> stop = false;
    std::atomic<int> on_left = 0, on_right = 0;
    ult wanders = spawn(left, [&] {
        while (!stop) {
            ++(execution_stream::current() == &left ? on_left : on_right);
            this_task::yield();
        }
    });
    for (int i = 0; i < 200; ++i) {
        const int seen = on_right;
        wanders.migrate(right.main_pool());
        while (on_right == seen)
            std::this_thread::yield();
        const int back = on_left;
        wanders.migrate(left.main_pool());
        while (on_left == back)
            std::this_thread::yield();
    }
    fifo_pool unserved;
    EXPECT_THROW(wanders.migrate(unserved), error);
    stop = true;
}

}  // namespace
}  // namespace amalgam
