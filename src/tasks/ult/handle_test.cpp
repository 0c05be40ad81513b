#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct handle_on_a_driven_stream : testing::Test {
    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};
};

TEST_F(handle_on_a_driven_stream, ids_differ_and_are_what_the_ult_itself_sees) {
    std::set<std::uint64_t> seen;
    for (int i = 0; i < 50; ++i) {
        std::uint64_t inside = 0;
        ult one = spawn(stream, [&] { inside = this_task::id(); });
        const std::uint64_t outside = one.id();
        stream.run_ready();
        EXPECT_EQ(inside, outside);
        EXPECT_EQ(one.id(), outside);  // also after the end
        EXPECT_EQ(one.ref().id(), outside);
        EXPECT_NE(outside, 0u);
        seen.insert(outside);
    }
    EXPECT_EQ(seen.size(), 50u);
    EXPECT_EQ(this_task::id(), 0u);
    EXPECT_EQ(ult_ref().id(), 0u);
}

TEST_F(handle_on_a_driven_stream, state_follows_its_life) {
    event go;
    ult_state inside{};
    ult one = spawn(stream, [&] {
        inside = this_task::self().state();
        this_task::yield();
        go.wait();
    });
    const ult_ref name = one.ref();
    EXPECT_EQ(one.state(), ult_state::created);
    stream.run_ready(1);
    EXPECT_EQ(inside, ult_state::running);
    EXPECT_EQ(one.state(), ult_state::ready);
    EXPECT_EQ(one.home(), &stream.main_pool());
    stream.run_ready();
    EXPECT_EQ(one.state(), ult_state::parked);
    EXPECT_EQ(name.state(), ult_state::parked);
    go.set();
    EXPECT_EQ(one.state(), ult_state::ready);
    stream.run_ready();
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_EQ(one.home(), nullptr);
    one.join();
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_EQ(name.state(), ult_state::ended);
    EXPECT_STREQ(amalgam::name(ult_state::created), "created");
    EXPECT_STREQ(amalgam::name(ult_state::ended), "ended");
}

TEST(handle, state_of_one_that_runs_on_another_stream_is_running) {
    execution_stream stream;
    std::atomic<bool> begun = false, end = false;
    ult busy = spawn(stream, [&] {
        begun = true;
        while (!end)
            std::this_thread::yield();
    });
    while (!begun)
        std::this_thread::yield();
    EXPECT_EQ(busy.state(), ult_state::running);
    EXPECT_EQ(busy.ref().state(), ult_state::running);
    end = true;
    busy.join();
}

TEST_F(handle_on_a_driven_stream, a_ref_outlives_a_detached_ult_and_its_stack) {
    ult_ref name;
    post(stream, [&] { name = this_task::self(); });
    stream.run_ready();
    ASSERT_TRUE(name);
    EXPECT_EQ(name.state(), ult_state::ended);
    for (int i = 0; i < 10; ++i) {  // on the same stack
        ult next = spawn(stream, [] { this_task::yield(); });
        EXPECT_FALSE(name.resume());
        name.cancel();
        name.migrate(stream.main_pool());
        EXPECT_EQ(name.state(), ult_state::ended);
        EXPECT_FALSE(name == next.ref());
        stream.run_ready();
        EXPECT_NO_THROW(next.join());
    }
    const ult_ref same = name;
    EXPECT_TRUE(same == name);
}

TEST_F(handle_on_a_driven_stream, resume_ends_a_suspend_and_one_that_comes_first_is_kept) {
    std::string order;
    ult one = spawn(stream, [&] {
        order += 'a';
        this_task::suspend();
        order += 'b';
        this_task::suspend();  // resumed before
        order += 'c';
        this_task::suspend();
        order += 'd';
    });
    stream.run_ready();
    EXPECT_EQ(order, "a");
    EXPECT_TRUE(one.resume());
    EXPECT_FALSE(one.resume());
    EXPECT_FALSE(one.resume());  // no more than one is kept
    stream.run_ready();
    EXPECT_EQ(order, "abc");
    EXPECT_TRUE(one.ref().resume());
    stream.run_ready();
    EXPECT_EQ(order, "abcd");
    one.join();
}

TEST_F(handle_on_a_driven_stream, a_suspended_ult_is_listed_as_such_and_can_be_canceled) {
    ult one = spawn(stream, [&] { this_task::suspend(); }, {.name = "sleeps"});
    stream.run_ready();
    bool listed = false;
    for (const ult_info& each : list_ults())
        listed |= each.name == "sleeps" && each.waits_for == "resume";
    EXPECT_TRUE(listed);
    one.ref().cancel();
    stream.run_ready();
    EXPECT_EQ(code_of([&] { one.join(); }), errc::canceled);
}

TEST_F(handle_on_a_driven_stream, try_join_never_waits_and_rethrows) {
    ult one = spawn(stream, [] { throw std::runtime_error("broken"); });
    EXPECT_FALSE(one.try_join());
    EXPECT_TRUE(one.joinable());
    stream.run_ready();
    EXPECT_THROW(one.try_join(), std::runtime_error);
    EXPECT_FALSE(one.joinable());
    EXPECT_EQ(code_of([&] { one.try_join(); }), errc::invalid);
}

TEST_F(handle_on_a_driven_stream, join_for_gives_up_at_its_deadline_and_joins_later) {
    event go;
    std::string order;
    ult waits = spawn(stream, [&] { go.wait(); });
    ult joins = spawn(stream, [&] {
        if (!waits.join_for(10ms)) order += "late ";
        if (!waits.join_for(10ms)) order += "later ";
        if (waits.join_for(10ms)) order += "joined";
    });
    stream.run_ready();
    EXPECT_EQ(order, "");
    time.advance(11ms);
    stream.run_ready();
    EXPECT_EQ(order, "late ");
    time.advance(11ms);
    stream.run_ready();
    EXPECT_EQ(order, "late later ");
    go.set();
    stream.run_ready();
    EXPECT_EQ(order, "late later joined");
    EXPECT_FALSE(waits.joinable());
}

// The end must not switch to a joiner that its deadline has put into the pool already.
TEST_F(handle_on_a_driven_stream, an_end_just_after_the_deadline_of_its_joiner_runs_that_once) {
    bool end = false;
    std::string order;
    ult ends = spawn(stream, [&] {
        while (!end)
            this_task::yield();
        order += "ends ";
    });
    ult joins = spawn(stream, [&] {
        order += ends.join_for(10ms) ? "joined " : "late ";
        this_task::yield();
        order += "once";
    });
    stream.run_ready(2);
    time.advance(11ms);
    stream.run_ready(1);  // then its timer fires
    end = true;
    stream.run_ready();
    EXPECT_EQ(order, "ends joined once");
    joins.join();
}

TEST_F(handle_on_a_driven_stream, join_until_can_be_canceled) {
    event go;
    ult waits = spawn(stream, [&] { go.wait(); });
    errc seen{};
    ult joins = spawn(stream, [&] { seen = code_of([&] { waits.join_for(1h); }); });
    stream.run_ready();
    joins.cancel();
    stream.run_ready();
    EXPECT_EQ(seen, errc::canceled);
    EXPECT_TRUE(waits.joinable());
    go.set();
    stream.run_ready();
}

TEST_F(handle_on_a_driven_stream, wait_keeps_the_handle_and_the_exception) {
    bool waited = false;
    ult one = spawn(stream, [] { throw std::runtime_error("kept"); });
    ult other = spawn(stream, [&] {
        one.wait();
        waited = true;
    });
    stream.run_ready();
    EXPECT_TRUE(waited);
    EXPECT_EQ(one.state(), ult_state::ended);
    EXPECT_THROW(one.join(), std::runtime_error);
    other.join();
}

TEST_F(handle_on_a_driven_stream, bad_use_of_a_handle_or_name_is_refused) {
    ult empty;
    const ult_ref nobody;
    EXPECT_EQ(code_of([&] { empty.id(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.ref(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.resume(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.wait(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.join_for(1ms); }), errc::invalid);
    EXPECT_EQ(code_of([&] { nobody.resume(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { nobody.cancel(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { nobody.migrate(stream.main_pool()); }), errc::invalid);
    EXPECT_NE(std::string(error_of([&] { empty.id(); }).what())
                  .find("cannot ask for its id: this ult is empty"),
              std::string::npos);
    EXPECT_NE(std::string(error_of([&] { nobody.cancel(); }).what()).find("this ult_ref is empty"),
              std::string::npos);
    EXPECT_EQ(code_of([] { this_task::self(); }), errc::invalid);
    EXPECT_EQ(code_of([] { this_task::suspend(); }), errc::invalid);
    errc in_tasklet{}, self_join{};
    post_tasklet(stream, [&] { in_tasklet = code_of([] { this_task::suspend(); }); });
    ult self;
    self = spawn(stream, [&] { self_join = code_of([&] { self.try_join(); }); });
    stream.run_ready();
    EXPECT_EQ(in_tasklet, errc::invalid);
    EXPECT_EQ(self_join, errc::invalid);
}

TEST(handle, suspend_and_resume_between_streams_lose_nothing) {
    execution_stream left, right;
    std::atomic<int> rounds = 0;
    ult sleeper = spawn(left, [&] {
        for (int i = 0; i < 5000; ++i) {
            this_task::suspend();
            ++rounds;
        }
    });
    const ult_ref name = sleeper.ref();
    ult waker = spawn(right, [&] {
        for (int i = 0; i < 5000; ++i) {
            name.resume();
            while (rounds <= i)
                this_task::yield();
        }
    });
    sleeper.join();
    waker.join();
    EXPECT_EQ(rounds, 5000);
}

TEST(handle, a_timed_join_from_another_thread_races_with_the_end) {
    execution_stream stream;
    int late = 0;
    for (int i = 0; i < 3000; ++i) {
        ult made_there;
        spawn(stream, [&] {
            made_there = spawn(stream, [i] {
                for (int k = 0; k < i % 7; ++k)
                    this_task::yield();
            });
        }).join();
        while (made_there.joinable())
            late += !made_there.join_for(std::chrono::microseconds(i % 5));
    }
    EXPECT_GE(late, 0);
}

// The owner names a ULT while that ends: the name must not keep what is gone.
TEST(handle, names_made_while_the_ult_ends_are_safe) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        ult one = spawn(stream, [] {});
        const ult_ref name = one.ref();
        if (i % 2 == 0) {
            one.join();
        } else {
            one.detach();
        }
        while (name.state() != ult_state::ended)
            std::this_thread::yield();
        name.cancel();
    }
}

}  // namespace
}  // namespace amalgam
