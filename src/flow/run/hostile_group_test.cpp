// Groups that break the protocol of a run, and strangers that impersonate them.
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/ult.hpp>

#include "flow/channel/wire.hpp"
#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

/// A source in G0, a sink in G1, and a third engine that is neither.
class hostile_group : public testing::Test {
protected:
    ~hostile_group() {
        if (stranger_) stranger_->stop();
        all_.net.run_until_idle();
    }
    void be_stranger(const char* name = "X") {
        stranger_ = std::make_unique<engine>(all_.net.port(name));
    }
    void stay_silently() {
        stranger_->define(library_name{wire::stay}, [] {
            this_task::sleep_for(1min);
            return std::string();
        });
    }
    peer at(const char* address) { return stranger_->lookup(address); }

    future<void> join_as_source() {
        return stranger_->procedure<wire::join_signature>(wire::join)
            .on(at("loop://G1"))
            .start(all_[0].built.core().fingerprint(), 0, 0);
    }
    void send(std::uint64_t number, const std::vector<int>& items, std::uint32_t count) {
        stranger_->procedure<wire::batch_signature>(wire::batch)
            .on(at("loop://G1"))
            .post(0, 0, number, count, std::as_bytes(std::span(items)));
    }
    future<std::string> end(std::uint64_t batches, std::uint64_t items) {
        return stranger_->procedure<wire::end_signature>(wire::end)
            .on(at("loop://G1"))
            .start(0, 0, batches, items);
    }
    /// G1's failure when a source, played by the stranger, does this after it joined.
    std::string failure_after(const std::function<void()>& bad) {
        be_stranger("G0");
        stay_silently();
        all_.start(all_[1]);
        auto joined = join_as_source();
        all_.net.run_for(1ms);
        EXPECT_TRUE(joined.ready());
        bad();
        all_.net.run_for(10ms);
        EXPECT_TRUE(all_[1].running->over().is_set()) << "it waits for what will not come";
        return all_.failure_of(1);
    }

    int sent_ = 100;
    std::vector<int> got_;
    simulated_run all_{
        two_groups, {.batch_bytes = 64, .window_bytes = 256}, [this](graph& g, const process_id&) {
            auto from = g.add_source<int>("from", [this](outlet<int>& out) {
                for (int i = 0; i < sent_; ++i)
                    out.send(i);
                this_task::sleep_for(10ms);
            });
            auto to = g.add_sink<int>("to", [this](int n) { got_.push_back(n); });
            g.pipeline(from, to);
            g.group("G0").add(from);
            g.group("G1").add(to);
        }};
    std::unique_ptr<engine> stranger_;
    future<std::string> ended_;
};

TEST_F(hostile_group, who_joins_under_a_name_that_is_taken_is_told) {
    be_stranger();
    stay_silently();
    all_.start(all_[1]);
    auto joined = join_as_source();
    all_.net.run_for(1ms);
    EXPECT_TRUE(joined.ready());
    all_.start(all_[0]);
    all_.net.run_for(1ms);
    EXPECT_NE(all_.failure_of(0).find("group G0 has already joined group G1 from loop://X"),
              std::string::npos)
        << all_.failure_of(0);
}

TEST_F(hostile_group, a_stranger_has_nothing_to_say_for_another) {
    be_stranger();
    all_.start_all();
    all_.net.run_for(1ms);
    const std::size_t got = got_.size();
    EXPECT_GT(got, 0u);
    // Every number within the window, in all orders.
    for (std::uint64_t number = 0; number < 40; ++number)
        send(number, {-1}, 1);
    auto ended = end(1, 1);
    stranger_->procedure<wire::credit_signature>(wire::credit)
        .on(at("loop://G0"))
        .post(0, 0, 32, 1);
    all_.net.run_for(1ms);
    ASSERT_TRUE(ended.ready());
    try {
        (void)ended.get();
        FAIL() << "it was taken for G0";
    } catch (const error& why) {
        EXPECT_NE(std::string(why.what()).find("this is not group G0"), std::string::npos)
            << why.what();
    }
    all_.run_until_idle();
    EXPECT_TRUE(all_.over());
    EXPECT_EQ(all_.failure_of(0) + all_.failure_of(1), "");
    EXPECT_EQ(got_.size(), 100u);
}

TEST_F(hostile_group, credit_from_a_stranger_gives_no_room) {
    be_stranger();
    simulated_run::process& source = all_[0];
    sent_ = 10'000;
    all_.start(source);
    auto taken = std::make_unique<engine>(all_.net.port("G1"));
    std::size_t bytes = 0;
    taken->define(library_name{wire::join}, [](std::string, std::uint32_t, std::uint32_t) {});
    taken->define(library_name{wire::stay}, [] {
        this_task::sleep_for(1min);
        return std::string();
    });
    taken->define(library_name{wire::batch},
                  [&](std::uint32_t, std::uint32_t, std::uint64_t, std::uint32_t,
                      std::span<const std::byte> more) { bytes += 32 + more.size(); });
    all_.net.run_for(100ms);
    const std::size_t window = bytes;
    EXPECT_GE(window, 256u);
    EXPECT_LT(window, 500u);
    stranger_->procedure<wire::credit_signature>(wire::credit)
        .on(at("loop://G0"))
        .post(0, 0, window, 1);
    all_.net.run_for(100ms);
    EXPECT_EQ(bytes, window);
    taken->stop();
}

TEST_F(hostile_group, a_sender_whose_count_is_wrong_ends_the_run_with_its_name) {
    EXPECT_EQ(failure_after([this] {
                  send(0, {1}, 1);
                  ended_ = end(1, 2);
              }),
              "group G0 violated the protocol: 1 of 2 items arrived");
}

TEST_F(hostile_group, a_sender_that_repeats_itself_ends_the_run_with_its_name) {
    EXPECT_EQ(failure_after([this] {
                  send(0, {1}, 1);
                  send(0, {1}, 1);
              }),
              "group G0 violated the protocol: batch 0 is out of sequence, expected batch 1");
}

TEST_F(hostile_group, a_sender_past_its_window_ends_the_run_with_its_name) {
    EXPECT_EQ(failure_after([this] {
                  // Before their turn, so that the sink takes neither.
                  send(1, std::vector<int>(100), 100);
                  send(2, {1}, 1);
              }),
              "group G0 violated the protocol: it sent batch 2 while 432 bytes were waiting, "
              "expected fewer than 256 (run_options::window_bytes, the same in every process)");
}

TEST_F(hostile_group, an_end_that_leaves_batches_out_ends_the_run_with_its_name) {
    EXPECT_EQ(failure_after([this] {
                  send(5, {1}, 1);  // Out of order, so it waits for the earlier ones.
                  ended_ = end(0, 0);
              }),
              "group G0 violated the protocol: it ended after 0 batches, but batch 5 arrived");
}

TEST_F(hostile_group, a_sender_that_says_it_is_over_before_its_end_is_lost) {
    be_stranger("G0");
    stranger_->define(library_name{wire::stay}, [] { return std::string(); });
    all_.start(all_[1]);
    auto joined = join_as_source();
    all_.net.run_for(10ms);
    EXPECT_EQ(all_.failure_of(1),
              "lost contact with group G0 (it reported the end of its run before all items were "
              "exchanged)");
}

TEST_F(hostile_group, last_words_are_cut) {
    be_stranger("G0");
    stranger_->define(library_name{wire::stay}, [] { return std::string(1'000'000, 'x'); });
    all_.start(all_[1]);
    auto joined = join_as_source();
    all_.net.run_for(10ms);
    EXPECT_EQ(all_.failure_of(1).rfind("group G0 failed: xxx", 0), 0u);
    EXPECT_LT(all_.failure_of(1).size(), 5000u);
}

/// G1 holds an item of the loop for a while; meanwhile G0 is told that the loop has ended.
TEST(hostile_loop, an_item_that_comes_back_after_the_end_is_not_lost_in_silence) {
    simulated_run all(two_groups, {}, [&](graph& g, const process_id&) {
        auto first = g.add_stage<int, int>("first", [](int n) { return n; });
        auto second = g.add_stage<int, int>("second", [](int n) {
            this_task::sleep_for(10ms);
            return n - 1;
        });
        auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(100); });
        auto to = g.add_sink<int>("to", [](int) {});
        auto loop = g.feedback(g.pipeline(first, second), [](int n) { return n > 0; });
        g.pipeline(from, loop, to);
        g.group("G0").add(from, first, to);
        g.group("G1").add(second);
    });
    all.start_all();
    all.net.run_for(5ms);
    engine stranger(all.net.port("X"));
    stranger.procedure<wire::loop_over_signature>(wire::loop_over)
        .on(stranger.lookup("loop://G0"))
        .post(0);
    all.run_until_idle();
    EXPECT_TRUE(all.over());
    stranger.stop();
    EXPECT_NE(
        all.failure_of(0).find("group G1 sent an item back into a loop that has already ended"),
        std::string::npos)
        << all.failure_of(0);
}

TEST(hostile_loop, that_nobody_watches_any_more_ends_the_run) {
    simulated_run all(two_groups, {.silence_limit = 100ms}, [&](graph& g, const process_id&) {
        auto first = g.add_stage<int, int>("first", [](int n) { return n; });
        auto second = g.add_stage<int, int>("second", [](int n) { return n; });
        auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(0); });
        auto to = g.add_sink<int>("to", [](int) {});
        auto loop = g.feedback(g.pipeline(first, second), [](int) { return false; });
        g.pipeline(from, loop, to);
        g.group("G0").add(second);
        g.group("G1").add(from, first, to);
    });
    // A stand-in for G0: alive, accepts everything, and never asks for counts.
    engine silent(all.net.port("G0"));
    silent.define(library_name{wire::join}, [](std::string, std::uint32_t, std::uint32_t) {});
    silent.define(library_name{wire::stay}, [] {
        this_task::sleep_for(1h);
        return std::string();
    });
    all.start(all[1]);
    const auto join = silent.procedure<wire::join_signature>(wire::join)
                          .on(silent.lookup("loop://G1"))
                          .start(all[1].built.core().fingerprint(), 0, 0);
    all.net.run_for(2min);
    EXPECT_NE(all.failure_of(1).find("has not checked for 60 s whether a loop has ended"),
              std::string::npos)
        << all.failure_of(1);
    silent.stop();
}

}  // namespace
}  // namespace amalgam::detail
