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

using detail::drive;
using detail::drive_turns;

struct driven : testing::Test {
    execution_stream stream{execution_stream_options{.driven = true}};
    drive_turns turns;
};

TEST_F(driven, runs_what_is_ready_and_says_how_much) {
    EXPECT_EQ(drive(stream, turns, 10), 0U);
    int ran = 0;
    for (int i = 0; i < 3; ++i)
        post(stream, [&ran] { ++ran; });
    EXPECT_EQ(drive(stream, turns, 10), 3U);
    EXPECT_EQ(ran, 3);
    EXPECT_EQ(turns.last.load(), detail::this_driver());
    EXPECT_FALSE(detail::being_driven(stream));
}

TEST_F(driven, is_left_alone_while_somebody_keeps_it) {
    bool ran = false;
    post(stream, [&ran] { ran = true; });
    turns.kept = 1;
    EXPECT_EQ(drive(stream, turns, 10), drive_turns::not_now);
    EXPECT_FALSE(ran);
    EXPECT_EQ(turns.last.load(), nullptr);
    EXPECT_EQ(detail::drive_kept(stream), 1U);
    EXPECT_TRUE(ran);
    turns.kept = 0;
    EXPECT_EQ(drive(stream, turns, 10), 0U);
}

TEST_F(driven, is_left_alone_while_somebody_drives_it) {
    std::size_t inside = 0;
    post(stream, [&] {
        inside = drive(stream, turns, 10);
        EXPECT_TRUE(detail::being_driven(stream));
        std::thread([&] { EXPECT_EQ(drive(stream, turns, 10), drive_turns::not_now); }).join();
    });
    EXPECT_EQ(drive(stream, turns, 10), 1U);
    EXPECT_EQ(inside, drive_turns::not_now);
}

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

/// Whose driver looks itself whether that poller has work.
struct looked_at : driven {
    looked_at() { stream.add_poller(mine); }
    ~looked_at() override { stream.remove_poller(mine); }
    bool take() {
        return take_to_drive(
            word, turns, [this]() -> auto& { return stream; });
    }
    std::size_t turn(bool has_work) {
        EXPECT_TRUE(take());
        return has_work ? drive_with_work(stream, 10, turns, mine)
                        : drive_without_work(stream, 10, turns, mine);
    }
    looked_poller mine;
    std::atomic<bool>& word = detail::driven_word(stream);
};

TEST_F(looked_at, polls_if_its_driver_found_work_and_asks_the_poller_for_nothing) {
    EXPECT_EQ(drive(stream, turns, 10), 0U);  // Takes the poller over.
    mine.looks = mine.polls = 0;
    turn(false);
    EXPECT_EQ(mine.polls, 0);
    EXPECT_EQ(mine.looks, 0);
    turn(true);
    EXPECT_EQ(mine.polls, 1);
    EXPECT_EQ(turns.last.load(), detail::this_driver());
    EXPECT_FALSE(detail::being_driven(stream));
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
    turns.kept = 1;
    EXPECT_FALSE(take());
    EXPECT_FALSE(detail::being_driven(stream));
    turns.kept = 0;
    EXPECT_TRUE(take());
    EXPECT_FALSE(take());
    drive_without_work(stream, 10, turns, mine);
    EXPECT_FALSE(detail::being_driven(stream));
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
                static_cast<void>(drive(stream, turns, 10));
        });
    }
    for (int i = 0; i < times; ++i) {
        if (i % 10 == 0) {
            turns.kept = 1;
            while (detail::being_driven(stream))
                std::this_thread::yield();
            keeping = true;
        }
        post(stream, [&] {
            ++ran;
            if (keeping && std::this_thread::get_id() != keeper) ++taken_from_keeper;
        });
        if (i % 10 != 0) continue;
        EXPECT_GE(detail::drive_kept(stream), 1U);
        keeping = false;
        turns.kept = 0;
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
