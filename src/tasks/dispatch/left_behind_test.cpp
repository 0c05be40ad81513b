#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/left_behind_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

template <typename Pool>
struct left_in_pool : left_behind {};
using any_stream_pools =
    testing::Types<shared_fifo_pool, lifo_pool, priority_pool, work_stealing_pool, deque_pool>;
TYPED_TEST_SUITE(left_in_pool, any_stream_pools);

TYPED_TEST(left_in_pool, ready_and_parked_ults_and_tasklets_are_canceled) {
    driven_pool<TypeParam> at;
    event go;
    int ends = 0;
    bool ran = false;
    ult parked = spawn(*at.where,
                       [&] {
                           go.wait();
                           ran = true;
                       },
                       {.name = "parks"});
    ult yielded = spawn(*at.where, [&] {
        this_task::yield();
        ran = true;
    });
    at.stream->run_ready(2);
    ult fresh = spawn(*at.where, [&, end = counted_end(ends)] { ran = true; });
    tasklet small = spawn_tasklet(*at.where, [&, end = counted_end(ends)] { ran = true; });
    ASSERT_EQ(at.where->ults(), 3u);
    at.end();

    EXPECT_EQ(this->told("ults=3"), 1u) << this->all_told();
    EXPECT_EQ(this->told("tasklets=1"), 1u);
    EXPECT_EQ(this->told("parks"), 1u);
    EXPECT_EQ(this->told("until ults() is 0"), 1u);
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_EQ(why_canceled(yielded).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_EQ(why_canceled(fresh).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_NE(why_canceled(small).find("its pool was destroyed"), std::string::npos);
    EXPECT_EQ(ends, 2);
    go.set();
    at.run();
    EXPECT_FALSE(ran);
}

TYPED_TEST(left_in_pool, detached_ones_are_only_logged) {
    driven_pool<TypeParam> at;
    event go;
    int ends = 0;
    bool ran = false;
    post(*at.where, [&] {
        go.wait();
        ran = true;
    });
    at.run();
    post(*at.where, [&, end = counted_end(ends)] { ran = true; });
    post_tasklet(*at.where, [&, end = counted_end(ends)] { ran = true; });
    at.end();
    EXPECT_EQ(ends, 2);
    EXPECT_EQ(this->told("ults=2"), 1u) << this->all_told();
    go.set();
    at.run();
    EXPECT_FALSE(ran);
}

TYPED_TEST(left_in_pool, an_empty_one_ends_without_a_word) {
    driven_pool<TypeParam> at;
    ult done = spawn(*at.where, [] {});
    at.run();
    done.join();
    at.end();
    EXPECT_EQ(this->all_told(), "");
}

TYPED_TEST(left_in_pool, a_stream_that_still_serves_it_is_stopped) {
    auto where = std::make_unique<TypeParam>();
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}));
    event go, waits;
    ult parked = spawn(*where, [&] {
        waits.set();
        go.wait();
    });
    waits.wait();
    where.reset();
    EXPECT_EQ(this->told("error: a pool was destroyed while a stream served it"), 1u)
        << this->all_told();
    EXPECT_EQ(this->told("ults=1"), 1u);
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_THROW(post(stream, [] {}), error);
    go.set();
}

TEST_F(left_behind, a_fifo_pool_cancels_what_is_in_it) {
    auto where = std::make_unique<fifo_pool>();
    int ends = 0;
    event go;
    ult fresh, parked;
    {
        execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                                {.driven = true});
        parked = spawn(*where, [&] { go.wait(); });
        stream.run_ready();
        fresh = spawn(*where, [end = counted_end(ends)] {});
        where.reset();
        EXPECT_EQ(told("error: a pool was destroyed while a stream served it"), 1u);
    }
    // Its stream was stopped first, so ready work ran.
    fresh.join();
    EXPECT_EQ(ends, 1);
    EXPECT_EQ(told("ults=1"), 1u) << all_told();
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    go.set();
}

TEST_F(left_behind, a_fifo_pool_drops_what_came_after_its_stream_had_stopped) {
    auto where = std::make_unique<fifo_pool>();
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                            {.driven = true});
    event go;
    ult woken = spawn(*where, [&] { go.wait(); });
    stream.run_ready();
    stream.stop();
    go.set();
    int ends = 0;
    tasklet joined = spawn_tasklet(*where, [end = counted_end(ends)] {});
    tasklet let_go = spawn_tasklet(*where, [end = counted_end(ends)] {});
    where.reset();
    EXPECT_EQ(told("ults=1"), 1u) << all_told();
    EXPECT_EQ(told("tasklets=2"), 1u);
    EXPECT_EQ(why_canceled(woken).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_NE(why_canceled(joined).find("this tasklet will never run again"), std::string::npos);
    let_go.detach();
    EXPECT_EQ(ends, 2);
}

TEST_F(left_behind, one_parked_in_a_streams_own_pool_is_canceled_with_the_stream) {
    std::optional<execution_stream> stream(std::in_place,
                                           execution_stream_options{.name = "short"});
    mutex held;
    held.lock();
    event waits;
    ult parked = spawn(*stream,
                       [&] {
                           waits.set();
                           held.lock();
                       },
                       {.name = "locks"});
    waits.wait();
    stream.reset();
    EXPECT_EQ(told("stream=short ults=1 names=locks"), 1u) << all_told();
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    held.unlock();
}

TEST_F(left_behind, a_joiner_that_waits_already_is_told) {
    execution_stream alive;
    std::optional<execution_stream> ending(std::in_place);
    event go, begun;
    std::string why;
    ult waits_for_ever = spawn(*ending, [&] { go.wait(); });
    ult joiner = spawn(alive, [&] {
        begun.set();
        why = why_canceled(waits_for_ever);
    });
    begun.wait();
    ending.reset();
    joiner.join();
    EXPECT_EQ(why.substr(0, canceled_ult.size()), canceled_ult);
    go.set();
}

TEST_F(left_behind, a_joiner_of_the_same_pool_is_left_too) {
    std::optional<execution_stream> ending(std::in_place, execution_stream_options{.driven = true});
    event go;
    ult inner;
    ult outer = spawn(*ending, [&] {
        inner = spawn([&] { go.wait(); });
        inner.join();
    });
    ending->run_ready();
    ending.reset();
    EXPECT_EQ(told("ults=2"), 1u) << all_told();
    EXPECT_EQ(why_canceled(outer).substr(0, canceled_ult.size()), canceled_ult);
    go.set();
}

TEST_F(left_behind, a_timed_wait_ends_nowhere_when_its_time_comes) {
    driven_pool<shared_fifo_pool> at;
    execution_stream& stream = *at.stream;
    bool ran = false;
    ult asleep = spawn(*at.where, [&] {
        this_task::sleep_for(1ms);
        ran = true;
    });
    at.run();
    at.end();
    ASSERT_TRUE(stream.next_timer().has_value());
    at.time.advance(1ms);
    stream.run_ready();
    EXPECT_FALSE(stream.next_timer().has_value());
    EXPECT_FALSE(ran);
    EXPECT_EQ(why_canceled(asleep).substr(0, canceled_ult.size()), canceled_ult);
}

TEST_F(left_behind, a_promise_kept_late_harms_nobody) {
    driven_pool<lifo_pool> at;
    promise<std::string> late;
    ult waits = spawn(*at.where, [got = late.get_future()]() mutable { got.get(); });
    at.run();
    at.end();
    late.set_value("too late to be seen by anybody, but long enough for the heap");
    EXPECT_EQ(why_canceled(waits).substr(0, canceled_ult.size()), canceled_ult);
}

TEST_F(left_behind, handles_of_canceled_ults_cancel_migrate_and_detach) {
    shared_fifo_pool other;
    execution_stream serves(std::make_unique<basic_scheduler>(std::vector<pool*>{&other}));
    driven_pool<shared_fifo_pool> at;
    event go;
    ult parked = spawn(*at.where, [&] { go.wait(); });
    at.run();
    ult fresh = spawn(*at.where, [] {});
    at.end();
    for (ult* each : {&parked, &fresh}) {
        each->cancel();
        each->migrate(other);
        bool went = true;
        spawn(other, [&] { went = this_task::yield_to(*each); }).join();
        EXPECT_FALSE(went);
        each->detach();
        EXPECT_FALSE(each->joinable());
    }
    go.set();
}

TEST_F(left_behind, they_are_listed_no_more) {
    driven_pool<shared_fifo_pool> at;
    event go;
    ult parked = spawn(*at.where, [&] { go.wait(); }, {.name = "not listed"});
    at.run();
    const auto listed = [] {
        const auto all = list_ults();
        return std::any_of(all.begin(), all.end(),
                           [](const ult_info& each) { return each.name == "not listed"; });
    };
    ASSERT_TRUE(listed());
    at.end();
    EXPECT_FALSE(listed());
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_FALSE(listed());
    go.set();
}

TEST_F(left_behind, a_body_may_hold_the_handle_of_another) {
    driven_pool<lifo_pool> at;
    ult first = spawn(*at.where, [] {});
    ult second = spawn(*at.where, [held = std::move(first)] {});
    post(*at.where, [held = std::move(second)] {});
    tasklet small = spawn_tasklet(*at.where, [] {});
    post_tasklet(*at.where, [held = std::move(small)] {});
    at.end();
    EXPECT_EQ(told("ults=3"), 1u) << all_told();
}

TEST_F(left_behind, a_ult_that_destroys_its_own_pool_ends_as_it_likes) {
    auto where = std::make_unique<shared_fifo_pool>();
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                            {.driven = true});
    bool returned = false;
    ult last = spawn(*where, [&] {
        where.reset();
        returned = true;
    });
    stream.run_ready();
    last.join();
    EXPECT_TRUE(returned);
    EXPECT_EQ(told("error: a pool was destroyed while a stream served it"), 1u) << all_told();
}

TEST_F(left_behind, a_ult_that_destroys_its_own_pool_counts_with_those_it_leaves) {
    auto where = std::make_unique<shared_fifo_pool>();
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                            {.driven = true});
    event never;
    ult other = spawn(*where, [&] { never.wait(); }, {.name = "other"});
    stream.run_ready();
    ult last = spawn(*where, [&] { where.reset(); }, {.name = "last"});
    stream.run_ready();
    last.join();
    EXPECT_THROW(other.join(), error);
    EXPECT_EQ(told("ults=2"), 1u) << all_told();
}

TEST_F(left_behind, a_ult_that_destroys_its_own_pool_is_canceled_when_it_waits) {
    auto where = std::make_unique<shared_fifo_pool>();
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{where.get()}),
                            {.driven = true});
    bool returned = false;
    ult last = spawn(*where, [&] {
        where.reset();
        this_task::yield();
        returned = true;
    });
    stream.run_ready();
    EXPECT_EQ(why_canceled(last).substr(0, canceled_ult.size()), canceled_ult);
    EXPECT_FALSE(returned);
}

TEST_F(left_behind, a_ult_asked_to_move_there_stays) {
    driven_pool<shared_fifo_pool> at;
    execution_stream stays({.driven = true});
    int turns = 0;
    ult moves = spawn(stays, [&] { ++turns; });
    moves.migrate(*at.where);
    at.end();
    EXPECT_EQ(told("about to migrate"), 1u) << all_told();
    stays.run_ready();
    EXPECT_EQ(turns, 1);
    moves.join();
}

TEST_F(left_behind, a_primary_streams_own_ult_is_not_told_of) {
    event go;
    ult parked;
    {
        execution_stream main({.name = "main", .primary = true});
        parked = spawn(main, [&] { go.wait(); });
        this_task::yield();
    }
    EXPECT_EQ(told("stream=main ults=1"), 1u) << all_told();
    EXPECT_EQ(why_canceled(parked).substr(0, canceled_ult.size()), canceled_ult);
    go.set();
}

TEST_F(left_behind, other_units_are_counted) {
    struct nothing : work_unit {
        nothing() : work_unit([](work_unit&) noexcept {}) {}
    } unit;
    auto where = std::make_unique<shared_fifo_pool>();
    where->push(unit);
    where.reset();
    EXPECT_EQ(told("other_units=1"), 1u) << all_told();
}

TEST_F(left_behind, four_of_them_are_named) {
    driven_pool<shared_fifo_pool> at;
    for (const char* each : {"one", "two", "three", "", "five", "six"})
        post(*at.where, [] {}, {.name = each});
    at.end();
    EXPECT_EQ(told("ults=6 names=\"one, two, three, unnamed, ...\""), 1u) << all_told();
}

}  // namespace
}  // namespace amalgam
