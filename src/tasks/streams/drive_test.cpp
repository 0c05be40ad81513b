#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/drive.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/ult.hpp>

// Who shares a driven stream with others.
namespace amalgam {
namespace {

using detail::drive_turns;

constexpr unsigned a_reason = 2;
constexpr unsigned another_reason = 4;

struct looked_poller final : poller {
    std::size_t poll() noexcept override {
        ++polls;
        return 0;
    }
    bool has_work() noexcept override {
        ++looks;
        return says;
    }
    int wait_handle() const noexcept override { return -1; }
    bool prepare_to_sleep() noexcept override { return true; }
    int polls = 0, looks = 0;
    bool says = false;
};

struct driven : testing::Test {
    driven() {
        turns.open(stream);
        turns.look_at(mine);
    }
    static constexpr std::size_t not_taken = 1000;
    /// A turn whose driver found no work at its poller.
    std::size_t drive() { return turns.take() ? turns.drive_without_work(10) : not_taken; }

    execution_stream stream{execution_stream_options{.driven = true}};
    drive_turns turns;
    looked_poller mine;
};

TEST_F(driven, runs_what_is_ready_and_says_how_much) {
    EXPECT_FALSE(turns.has_driver());
    EXPECT_FALSE(turns.wake_if_driver());
    EXPECT_EQ(drive(), 0U);
    int ran = 0;
    for (int i = 0; i < 3; ++i)
        post(stream, [&ran] { ++ran; });
    EXPECT_EQ(drive(), 3U);
    EXPECT_EQ(ran, 3);
    EXPECT_TRUE(turns.has_driver());
    EXPECT_TRUE(turns.wake_if_driver());
    std::thread([&] { EXPECT_FALSE(turns.wake_if_driver()) << "another thread drove it"; }).join();
    EXPECT_FALSE(turns.being_driven());
}

TEST_F(driven, is_left_alone_while_somebody_keeps_it) {
    bool ran = false;
    post(stream, [&ran] { ran = true; });
    EXPECT_TRUE(turns.keep(a_reason));
    EXPECT_FALSE(turns.keep(a_reason)) << "one keeps it for one reason at a time";
    EXPECT_FALSE(turns.being_driven());
    EXPECT_EQ(drive(), not_taken);
    EXPECT_FALSE(ran);
    EXPECT_FALSE(turns.has_driver());
    EXPECT_EQ(turns.drive_kept(), 1U);
    EXPECT_TRUE(ran);
    EXPECT_EQ(drive(), not_taken) << "who keeps it has driven it, and goes on keeping it";
    turns.let_go(a_reason);
    EXPECT_EQ(drive(), 0U);
}

TEST_F(driven, is_kept_until_each_reason_is_gone) {
    EXPECT_TRUE(turns.keep(a_reason));
    EXPECT_TRUE(turns.keep(another_reason));
    turns.let_go(a_reason);
    EXPECT_FALSE(turns.is_kept(a_reason));
    EXPECT_TRUE(turns.is_kept(another_reason));
    EXPECT_EQ(drive(), not_taken);
    turns.let_go(another_reason);
    EXPECT_EQ(drive(), 0U);
}

TEST_F(driven, that_begins_to_be_kept_in_a_turn_is_kept_after_it) {
    post(stream, [&] {
        EXPECT_TRUE(turns.keep(a_reason));
        EXPECT_TRUE(turns.being_driven());
    });
    EXPECT_EQ(drive(), 1U);
    EXPECT_FALSE(turns.being_driven());
    EXPECT_EQ(drive(), not_taken);
}

TEST_F(driven, is_run_by_who_calls_run_ready_also_while_it_is_kept) {
    EXPECT_TRUE(turns.keep(a_reason));
    post(stream, [&] { EXPECT_TRUE(turns.being_driven()); });
    EXPECT_EQ(stream.run_ready(), 1U);
    EXPECT_FALSE(turns.being_driven());
    EXPECT_TRUE(turns.is_kept(a_reason));
}

TEST_F(driven, is_left_alone_while_somebody_drives_it) {
    std::size_t inside = 0;
    post(stream, [&] {
        inside = drive();
        EXPECT_TRUE(turns.being_driven());
        std::thread([&] { EXPECT_EQ(drive(), not_taken); }).join();
    });
    EXPECT_EQ(drive(), 1U);
    EXPECT_EQ(inside, not_taken);
}

TEST_F(driven, in_a_child_of_fork_is_kept_for_one_reason_and_has_no_driver) {
    EXPECT_EQ(drive(), 0U);
    EXPECT_TRUE(turns.keep(a_reason));
    turns.keep_in_child(another_reason);
    EXPECT_FALSE(turns.is_kept(a_reason));
    EXPECT_TRUE(turns.is_kept(another_reason));
    EXPECT_FALSE(turns.has_driver());
    EXPECT_EQ(drive(), not_taken);
}

/// Whose driver looks itself whether that poller has work.
struct looked_at : driven {
    looked_at() { stream.add_poller(mine); }
    ~looked_at() override { stream.remove_poller(mine); }
    std::size_t turn(bool has_work) {
        EXPECT_TRUE(turns.take());
        return has_work ? turns.drive_with_work(10) : turns.drive_without_work(10);
    }
};

TEST_F(looked_at, polls_if_its_driver_found_work_and_asks_the_poller_for_nothing) {
    turn(false);  // Takes the poller over.
    mine.looks = mine.polls = 0;
    turn(false);
    EXPECT_EQ(mine.polls, 0);
    EXPECT_EQ(mine.looks, 0);
    turn(true);
    EXPECT_EQ(mine.polls, 1);
    EXPECT_TRUE(turns.wake_if_driver());
    EXPECT_FALSE(turns.being_driven());
}

TEST_F(looked_at, runs_units_and_timers_whatever_its_driver_found) {
    turn(false);
    bool ran = false;
    post(stream, [&ran] { ran = true; });
    EXPECT_EQ(turn(false), 1U);
    EXPECT_TRUE(ran);
}

TEST_F(looked_at, asks_all_pollers_if_there_are_others) {
    looked_poller other;
    turn(false);
    stream.add_poller(other);
    turn(false);
    mine.looks = mine.polls = other.looks = other.polls = 0;
    other.says = true;
    turn(false);
    EXPECT_GE(other.polls, 1);
    stream.remove_poller(other);
}

TEST_F(looked_at, is_not_taken_while_somebody_keeps_or_drives_it) {
    turns.keep(a_reason);
    EXPECT_FALSE(turns.take());
    EXPECT_FALSE(turns.being_driven());
    turns.let_go(a_reason);
    EXPECT_TRUE(turns.take());
    EXPECT_FALSE(turns.take());
    turns.drive_without_work(10);
    EXPECT_FALSE(turns.being_driven());
}

TEST_F(driven, is_driven_by_one_at_a_time_and_kept_by_one) {
    constexpr int times = 2000;
    const std::thread::id keeper = std::this_thread::get_id();
    // Not atomic: of who has the stream.
    bool keeping = false;
    int ran = 0, taken_from_keeper = 0;
    std::atomic<bool> done{false};
    std::vector<std::thread> loops;
    for (int i = 0; i < 2; ++i) {
        loops.emplace_back([&] {
            while (!done)
                static_cast<void>(drive());
        });
    }
    for (int i = 0; i < times; ++i) {
        if (i % 10 == 0) {
            turns.keep(a_reason);
            while (turns.being_driven())
                std::this_thread::yield();
            keeping = true;
        }
        post(stream, [&] {
            ++ran;
            if (keeping && std::this_thread::get_id() != keeper) ++taken_from_keeper;
        });
        if (i % 10 != 0) continue;
        EXPECT_GE(turns.drive_kept(), 1U);
        keeping = false;
        turns.let_go(a_reason);
    }
    done = true;
    for (std::thread& each : loops)
        each.join();
    stream.run_ready();
    EXPECT_EQ(ran, times);
    EXPECT_EQ(taken_from_keeper, 0);
}

}  // namespace
}  // namespace amalgam
