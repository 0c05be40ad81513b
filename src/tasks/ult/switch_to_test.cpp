#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/switch_to.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

struct switch_to : testing::Test {
    execution_stream stream{execution_stream_options{.driven = true}};
    std::string order;

    auto says(char what) {
        return [this, what] { order += what; };
    }
};

TEST_F(switch_to, yield_to_takes_a_name_too) {
    ult last;
    post(stream, [&] {
        EXPECT_TRUE(this_task::yield_to(last.ref()));
        order += 'a';
    });
    post(stream, says('b'));
    last = spawn(stream, says('c'));
    stream.run_ready();
    EXPECT_EQ(order, "cba");
}

TEST_F(switch_to, suspend_to_runs_the_target_before_others_and_returns_when_resumed) {
    ult last;
    ult first = spawn(stream, [&] {
        order += 'a';
        EXPECT_TRUE(this_task::suspend_to(last));
        order += 'd';
    });
    post(stream, says('c'));
    last = spawn(stream, says('b'));
    stream.run_ready();
    EXPECT_EQ(order, "abc");
    EXPECT_EQ(first.state(), ult_state::parked);
    first.resume();
    stream.run_ready();
    EXPECT_EQ(order, "abcd");
}

TEST_F(switch_to, suspend_to_one_that_is_not_ready_just_suspends) {
    event go;
    ult parked = spawn(stream, [&] { go.wait(); });
    ult first = spawn(stream, [&] {
        EXPECT_FALSE(this_task::suspend_to(parked.ref()));
        order += 'a';
    });
    stream.run_ready();
    EXPECT_EQ(order, "");
    first.resume();
    go.set();
    stream.run_ready();
    EXPECT_EQ(order, "a");
}

TEST_F(switch_to, suspend_to_of_one_resumed_before_yields_to_the_target) {
    ult last;
    ult first = spawn(stream, [&] {
        EXPECT_TRUE(this_task::suspend_to(last));
        order += 'c';
    });
    first.resume();
    post(stream, says('b'));
    last = spawn(stream, says('a'));
    stream.run_ready();
    EXPECT_EQ(order, "abc");
}

TEST_F(switch_to, a_cancel_ends_suspend_to) {
    ult last = spawn(stream, says('b'));
    errc seen{};
    ult first = spawn(stream, [&] { seen = code_of([&] { this_task::suspend_to(last); }); });
    stream.run_ready();
    first.cancel();
    stream.run_ready();
    EXPECT_EQ(seen, errc::canceled);
}

TEST_F(switch_to, exit_to_unwinds_then_runs_the_target_before_others) {
    struct notice {
        std::string& order;
        ~notice() { order += '~'; }
    };
    ult last;
    ult first = spawn(stream, [&] {
        const notice unwound{order};
        this_task::exit_to(last);
    });
    post(stream, says('b'));
    last = spawn(stream, says('a'));
    stream.run_ready();
    EXPECT_EQ(order, "~ab");
    EXPECT_EQ(first.state(), ult_state::ended);
    EXPECT_NO_THROW(first.join());
}

TEST_F(switch_to, a_stack_left_by_exit_to_is_used_again) {
    ult_local<int> mine;
    for (int i = 0; i < 200; ++i) {
        ult last;
        ult first = spawn(stream, [&] {
            EXPECT_EQ(*mine, 0);
            *mine = 1;
            this_task::exit_to(last.ref());
        });
        last = spawn(stream, [&] {
            EXPECT_EQ(*mine, 0);
            order += 'x';
        });
        stream.run_ready();
        first.join();
        last.join();
    }
    EXPECT_EQ(order, std::string(200, 'x'));
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

TEST_F(switch_to, exit_to_one_that_has_ended_just_exits) {
    ult_ref gone;
    post(stream, [&] { gone = this_task::self(); });
    stream.run_ready();
    post(stream, [&] { this_task::exit_to(gone); });
    post(stream, says('a'));
    stream.run_ready();
    EXPECT_EQ(order, "a");
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

TEST_F(switch_to, exit_to_wakes_who_joins) {
    ult last, first;
    ult joins = spawn(stream, [&] {
        first.join();
        order += 'b';
    });
    first = spawn(stream, [&] { this_task::exit_to(last); });
    last = spawn(stream, says('a'));
    stream.run_ready();
    EXPECT_EQ(order, "ab");
}

TEST_F(switch_to, resume_and_yield_to_runs_the_resumed_one_first) {
    ult sleeper = spawn(stream, [&] {
        this_task::suspend();
        order += 'a';
    });
    stream.run_ready();
    post(stream, [&] {
        EXPECT_TRUE(this_task::resume_and_yield_to(sleeper));
        order += 'c';
        EXPECT_FALSE(this_task::resume_and_yield_to(sleeper.ref()));  // it has ended
        order += 'd';
    });
    post(stream, says('b'));
    stream.run_ready();
    EXPECT_EQ(order, "abcd");
}

TEST_F(switch_to, spawn_to_runs_the_new_ult_first) {
    post(stream, [&] {
        ult made = spawn_to(stream, says('a'));
        order += 'c';
        made.join();
    });
    post(stream, says('b'));
    stream.run_ready();
    EXPECT_EQ(order, "abc");
}

TEST_F(switch_to, a_target_of_another_stream_is_left_to_that) {
    execution_stream other(execution_stream_options{.driven = true});
    ult there = spawn(other, says('b'));
    ult first = spawn(stream, [&] {
        EXPECT_FALSE(this_task::yield_to(there.ref()));
        EXPECT_FALSE(this_task::suspend_to(there));
        order += 'c';
    });
    stream.run_ready();
    other.run_ready();
    first.resume();
    stream.run_ready();
    EXPECT_EQ(order, "bc");
}

TEST_F(switch_to, bad_use_is_refused) {
    ult one = spawn(stream, [] {}), empty;
    const ult_ref nobody;
    EXPECT_EQ(code_of([&] { this_task::suspend_to(one); }), errc::invalid);
    EXPECT_EQ(code_of([&] { this_task::exit_to(one); }), errc::invalid);
    EXPECT_EQ(code_of([&] { this_task::resume_and_yield_to(one); }), errc::invalid);
    EXPECT_EQ(code_of([&] { this_task::yield_to(one.ref()); }), errc::invalid);
    EXPECT_EQ(code_of([&] { spawn_to(stream, [] {}); }), errc::invalid);
    std::vector<errc> seen;
    post(stream, [&] {
        seen.push_back(code_of([&] { this_task::suspend_to(empty); }));
        seen.push_back(code_of([&] { this_task::suspend_to(nobody); }));
        seen.push_back(code_of([&] { this_task::exit_to(empty); }));
        seen.push_back(code_of([&] { this_task::exit_to(nobody); }));
        seen.push_back(code_of([&] { this_task::yield_to(nobody); }));
        seen.push_back(code_of([&] { this_task::resume_and_yield_to(empty); }));
        seen.push_back(code_of([&] { this_task::resume_and_yield_to(nobody); }));
    });
    stream.run_ready();
    EXPECT_EQ(seen, std::vector<errc>(7, errc::invalid));
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

// Two ULTs hand a token to each other on two streams that share a pool.
TEST(switch_to_on_shared_pools, resume_and_suspend_lose_nobody) {
    shared_fifo_pool shared;
    execution_stream left(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    execution_stream right(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    ult ping, pong;
    event known;
    constexpr int rounds = 5000;
    std::atomic<int> turns = 0;
    const auto play = [&](ult& other) {
        known.wait();
        for (int i = 0; i < rounds; ++i) {
            ++turns;
            other.resume();
            this_task::suspend_to(other);
        }
        other.resume();
    };
    ping = spawn(shared, [&] { play(pong); });
    pong = spawn(shared, [&] { play(ping); });
    known.set();
    ping.wait();
    pong.wait();
    EXPECT_EQ(turns, 2 * rounds);
}

}  // namespace
}  // namespace amalgam
