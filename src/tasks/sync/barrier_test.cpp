#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/barrier.hpp>
#include <amalgam/tasks/latch.hpp>

#include "tasks/streams/stream_testing.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using barrier_in_turn = driven_stream_test;
using latch_in_turn = driven_stream_test;

TEST(barrier, nobody_is_a_round_ahead_and_one_in_each_round_was_last) {
    constexpr int rounds = 500;
    execution_stream left, right;
    barrier meet(5);
    std::atomic<int> arrived = 0, lasts = 0;
    const auto work = [&] {
        for (int round = 1; round <= rounds; ++round) {
            ++arrived;
            lasts += meet.arrive_and_wait();
            EXPECT_GE(arrived, 5 * round);
            EXPECT_LT(arrived, 5 * (round + 1));  // parties here have not arrived again
        }
    };
    std::vector<ult> ults;
    for (int i = 0; i < 2; ++i) {
        ults.push_back(spawn(left, work));
        ults.push_back(spawn(right, work));
    }
    work();
    ults.clear();
    EXPECT_EQ(lasts, rounds);
}

TEST_F(barrier_in_turn, who_drops_out_is_not_expected_any_more) {
    barrier meet(3);
    for (char name : {'a', 'b'}) {
        run([&, name] {
            for (int round = 0; round < 2; ++round) {
                meet.arrive_and_wait();
                seen += name;
            }
        });
    }
    EXPECT_EQ(news(), "");
    meet.arrive_and_drop();  // the last of this round
    run();
    EXPECT_EQ(news(), "abba");  // b was the last in the second round and continued
}

TEST_F(barrier_in_turn, when_all_have_dropped_out_an_arrival_is_refused) {
    barrier meet(1);
    meet.arrive_and_drop();
    EXPECT_THROW(meet.arrive_and_wait(), error);
    EXPECT_THROW(meet.arrive_and_drop(), error);
    EXPECT_THROW(barrier(0), error);
}

TEST_F(barrier_in_turn, a_tasklet_cannot_meet_and_has_not_arrived) {
    barrier meet(1);
    post_tasklet(stream, [&] { EXPECT_THROW(meet.arrive_and_wait(), error); });
    run();
    EXPECT_TRUE(meet.arrive_and_wait());
}

TEST_F(barrier_in_turn, who_is_canceled_while_it_waits_has_arrived) {
    barrier meet(3);
    ult canceled = spawn(stream, [&] { meet.arrive_and_wait(); });
    run([&] {
        meet.arrive_and_wait();
        seen += "through";
    });
    canceled.cancel();
    run();
    EXPECT_THROW(canceled.join(), error);
    EXPECT_EQ(news(), "");
    EXPECT_TRUE(meet.arrive_and_wait());
    run();
    EXPECT_EQ(news(), "through");
}

detached_coroutine meet_twice(barrier& meet, std::string& seen) {
    for (int round = 0; round < 2; ++round)
        seen += co_await meet.start_arrive() ? "last " : "co ";
}

TEST_F(barrier_in_turn, coroutines_meet_ults) {
    barrier meet(2);
    run([&] {
        meet_twice(meet, seen);
        seen += meet.arrive_and_wait() ? "last " : "ult ";
        seen += meet.arrive_and_wait() ? "last " : "ult ";
    });
    EXPECT_EQ(news(), "last co last ult ");
}

TEST(barrier, may_die_as_soon_as_the_last_arrival_returned) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto meet = std::make_unique<barrier>(2);
        post(stream, [at = meet.get(), drops = i % 2 == 0] {
            drops ? at->arrive_and_drop() : static_cast<void>(at->arrive_and_wait());
        });
        meet->arrive_and_wait();
    }
}

TEST_F(latch_in_turn, opens_for_everybody_when_it_has_counted_down) {
    latch start(3);
    for (char name : {'a', 'b'}) {
        run([&, name] {
            start.wait();
            seen += name;
        });
    }
    start.count_down(2);
    run();
    EXPECT_FALSE(start.try_wait());
    EXPECT_EQ(news(), "");
    run([&] { start.arrive_and_wait(); });
    EXPECT_TRUE(start.try_wait());
    EXPECT_EQ(news(), "ab");
    start.wait();
    EXPECT_TRUE(latch(0).try_wait());
}

TEST_F(latch_in_turn, counts_nothing_that_is_too_much) {
    latch start(2);
    EXPECT_THROW(start.count_down(3), error);
    EXPECT_FALSE(start.try_wait());
    start.count_down(2);
    EXPECT_TRUE(start.try_wait());
    EXPECT_THROW(start.count_down(), error);
}

detached_coroutine wait_for_latch(latch& start, std::string& seen) {
    co_await start.start_wait();
    seen += "through";
}

TEST_F(latch_in_turn, a_deadline_ends_the_wait_and_coroutines_wait_too) {
    latch start(1);
    run([&] { seen += start.wait_for(10ms) ? "open" : "late"; });
    advance(10ms);
    EXPECT_EQ(news(), "late");
    run([&] { wait_for_latch(start, seen); });
    post_tasklet(stream, [&] { start.count_down(); });
    run();
    EXPECT_EQ(news(), "through");
}

TEST(latch, may_die_as_soon_as_wait_returned) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto done = std::make_unique<latch>(2);
        for (int part = 0; part < 2; ++part)
            post(stream, [at = done.get()] { at->count_down(); });
        done->wait();
    }
}

TEST_F(barrier_in_turn, is_in_a_round_though_the_party_that_arrived_was_canceled) {
    barrier meet(2);
    ult gives_up = spawn(stream, [&] { meet.arrive_and_wait(); });
    stream.run_ready();
    gives_up.cancel();
    stream.run_ready();
    EXPECT_EQ(code_of([&] { gives_up.join(); }), errc::canceled);
    const error refused = error_of([&] { meet.resize(3); });
    EXPECT_EQ(refused.code(), errc::invalid);
    EXPECT_NE(std::string(refused.what()).find("1 of 2 parties have arrived"), std::string::npos)
        << refused.what();
    meet.arrive_and_drop();
    meet.resize(1);
    meet.arrive_and_wait();
}

TEST_F(barrier_in_turn, is_resized_between_rounds_only) {
    barrier meet(2);
    const auto refused = [&](std::size_t parties) {
        try {
            meet.resize(parties);
        } catch (const error& why) {
            return why.code().code == errc::invalid;
        }
        return false;
    };
    const auto arrive = [&](char name) {
        run([&meet, this, name] {
            meet.arrive_and_wait();
            seen += name;
        });
    };
    EXPECT_TRUE(refused(0));
    arrive('a');
    EXPECT_TRUE(refused(3));
    arrive('b');
    EXPECT_EQ(news(), "ba");
    meet.resize(1);
    arrive('c');
    EXPECT_EQ(news(), "c");
    meet.arrive_and_drop();
    meet.resize(2);  // also after all have dropped out
    arrive('d');
    EXPECT_EQ(news(), "");
    arrive('e');
    EXPECT_EQ(news(), "ed");
}

}  // namespace
}  // namespace amalgam
