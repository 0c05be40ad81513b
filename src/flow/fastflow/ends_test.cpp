#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/detail/fastflow_in.hpp>
#include <amalgam/flow/detail/fastflow_out.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/tasks/event.hpp>

// The classes behind the nodes of fastflow.hpp, on plain threads: needs no FastFlow.
namespace amalgam::detail {
namespace {

/// Records the failure instead of ending the process.
struct told {
    fastflow_options options(std::size_t batch_bytes = 500) {
        return {.batch_bytes = batch_bytes, .on_failure = [this](const failure& why) {
                    sentence = why.sentence;
                    is_told.set();
                }};
    }
    event is_told;
    std::string sentence;
};

void send(fastflow_out& to, std::uint32_t sender, std::uint64_t number, std::size_t bytes = 0) {
    to.send({}, [&](auto& archive) { archive(sender, number, std::string(bytes, 'x')); });
}

class fastflow_ends : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, fastflow_ends, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, fastflow_ends, testing::Values("tcp://127.0.0.1:0"));

TEST_P(fastflow_ends, each_sender_s_items_come_once_and_in_order) {
    constexpr std::uint32_t senders = 3;
    constexpr std::uint64_t items = 20000;
    told none;
    fastflow_in in(GetParam(), senders, "t", none.options());
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < senders; ++i)
        threads.emplace_back([&, i] {
            fastflow_out out({in.over().address()}, "t", none.options());
            out.join();
            for (std::uint64_t n = 0; n < items; ++n)
                send(out, i, n, n % 1000 == 0 ? 200000 : n % 40);
            out.end();
        });
    std::vector<std::uint64_t> next(senders);
    while (auto batch = in.next()) {
        archive_reader archive(batch->bytes.bytes());
        for (std::uint32_t i = 0; i < batch->items; ++i) {
            std::uint32_t sender = 0;
            std::uint64_t number = 0;
            std::string filling;
            archive(sender, number, filling);
            ASSERT_LT(sender, senders);
            ASSERT_EQ(number, next[sender]++);
        }
        ASSERT_TRUE(archive.ok() && archive.remaining() == 0);
        in.consumed(*batch);
    }
    for (std::thread& each : threads)
        each.join();
    EXPECT_EQ(next, std::vector<std::uint64_t>(senders, items));
    EXPECT_FALSE(none.is_told.is_set()) << none.sentence;
}

TEST_P(fastflow_ends, a_failure_in_the_midst_of_sending_ends_both) {
    for (int round = 0; round < 20; ++round) {
        told here, there;
        fastflow_in in(GetParam(), 1, "t", there.options());
        std::thread sender([&] {
            fastflow_out out({in.over().address()}, "t", here.options());
            out.join();
            for (std::uint64_t n = 0; !out.failed(); ++n)
                send(out, 0, n);
            out.end();
            out.wait_for_last_words();
        });
        for (int i = 0; i < round; ++i) {
            auto batch = in.next();
            ASSERT_TRUE(batch);
            in.consumed(*batch);
        }
        auto held = in.next();
        in.fail({{errc::canceled}, "enough"});
        // Otherwise it counts as still leaving, and is waited for.
        if (round % 10 != 0) in.give_back(std::move(*held));
        EXPECT_FALSE(in.next());
        in.wait_for_last_words();
        sender.join();
        EXPECT_EQ(there.sentence, "enough");
        EXPECT_NE(here.sentence.find("enough"), std::string::npos) << here.sentence;
    }
}

TEST_P(fastflow_ends, either_may_be_destroyed_at_any_time) {
    for (int round = 0; round < 20; ++round) {
        told here, there;
        auto in = std::make_unique<fastflow_in>(GetParam(), 1, "t", there.options());
        auto out = std::make_unique<fastflow_out>(std::vector<std::string>{in->over().address()},
                                                  "t", here.options());
        out->join();
        for (int i = 0; i < round; ++i)
            send(*out, 0, 0);
        if (round % 2 == 0) {
            in.reset();
            here.is_told.wait();
        } else {
            out.reset();
            while (in->next())
                ;
            there.is_told.wait();
        }
    }
}

TEST_P(fastflow_ends, a_receiver_that_there_is_none_of_is_refused_and_nothing_is_lost) {
    told none;
    fastflow_in in(GetParam(), 1, "t", none.options());
    std::thread sender([&] {
        fastflow_out out({in.over().address()}, "t", none.options());
        out.join();
        const auto write = [](auto& archive) { archive(std::uint32_t{7}); };
        EXPECT_TRUE(out.send(0, write));
        EXPECT_THROW(out.send(1, write), error);
        EXPECT_TRUE(out.send({}, write));
        out.end();
    });
    std::uint32_t items = 0;
    while (auto batch = in.next()) {
        items += batch->items;
        in.consumed(*batch);
    }
    sender.join();
    EXPECT_EQ(items, 2u);
    EXPECT_FALSE(none.is_told.is_set()) << none.sentence;
}

TEST_P(fastflow_ends, a_failure_is_told_once_on_a_thread_of_its_own_after_the_other_end_was) {
    told there;
    fastflow_options options = there.options();
    std::unique_ptr<fastflow_out> out;
    int calls = 0;
    bool other_knew = false;
    std::thread::id ran_on;
    options.on_failure = [&](const failure& why) {
        ++calls;
        ran_on = std::this_thread::get_id();
        other_knew = out->failed().has_value();
        there.sentence = why.sentence;
    };
    fastflow_in in(GetParam(), 1, "t", options);
    told here;
    out = std::make_unique<fastflow_out>(std::vector<std::string>{in.over().address()}, "t",
                                         here.options());
    out->join();
    std::vector<std::thread> all;
    for (int i = 0; i < 4; ++i)
        all.emplace_back([&] { in.fail({{errc::canceled}, "enough"}); });
    for (std::thread& each : all)
        each.join();
    in.fail({{errc::canceled}, "more than enough"});
    in.wait_for_last_words();
    here.is_told.wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(there.sentence, "enough");
    EXPECT_TRUE(other_knew);
    EXPECT_NE(ran_on, std::this_thread::get_id());
    EXPECT_NE(ran_on, std::thread::id());
}

TEST_P(fastflow_ends, no_more_batches_than_may_be_in_flight_are_sent_before_one_was_consumed) {
    constexpr std::uint64_t batches = 3, item_bytes = 100, batch_bytes = 1000;
    told none;
    fastflow_options options = none.options(batch_bytes);
    options.batches_in_flight = batches;
    fastflow_in in(GetParam(), 1, "t", none.options());
    std::atomic<std::uint64_t> sent{0};
    std::thread sender([&] {
        fastflow_out out({in.over().address()}, "t", options);
        out.join();
        for (std::uint64_t n = 0; n < 2000; ++n, ++sent)
            send(out, 0, n, item_bytes);
        out.end();
    });
    // Batches in flight, and the one being filled; each including the item that completes it.
    constexpr std::uint64_t most = (batches + 1) * (batch_bytes / item_bytes + 1) + 1;
    std::deque<fastflow_in::arrival> held;
    std::uint64_t came = 0, consumed = 0, most_ahead = 0;
    const auto take = [&] {
        auto batch = in.next();
        if (!batch) return false;
        came += batch->items;
        held.push_back(std::move(*batch));
        return true;
    };
    const auto consume_first = [&] {
        most_ahead = std::max(most_ahead, sent - consumed);
        consumed += held.front().items;
        in.consumed(held.front());
        held.pop_front();
    };
    // While another full batch is to come.
    while (came + 2 * batch_bytes / item_bytes < 2000) {
        if (held.size() == batches) consume_first();
        ASSERT_TRUE(take());
    }
    do {
        while (!held.empty())
            consume_first();
    } while (take());
    sender.join();
    EXPECT_EQ(consumed, 2000u);
    EXPECT_LE(most_ahead, most);
    EXPECT_FALSE(none.is_told.is_set()) << none.sentence;
}

TEST_P(fastflow_ends, a_sender_ends_when_everything_has_left_its_receiver) {
    told none;
    fastflow_in in(GetParam(), 1, "t", none.options());
    std::atomic<bool> has_left{false};
    std::thread sender([&] {
        fastflow_out out({in.over().address()}, "t", none.options());
        out.join();
        send(out, 0, 0);
        out.end();
        EXPECT_TRUE(has_left);
    });
    auto batch = in.next();
    ASSERT_TRUE(batch);
    std::this_thread::yield();
    has_left = true;
    in.consumed(*batch);
    EXPECT_FALSE(in.next());
    sender.join();
}

TEST_P(fastflow_ends, after_a_good_end_no_failure_counts) {
    told none;
    fastflow_in in(GetParam(), 1, "t", none.options());
    fastflow_out out({in.over().address()}, "t", none.options());
    std::thread sender([&] {
        out.join();
        send(out, 0, 0);
        out.end();
    });
    auto batch = in.next();
    ASSERT_TRUE(batch);
    in.consumed(*batch);
    EXPECT_FALSE(in.next());
    sender.join();
    in.fail({{errc::canceled}, "too late"});
    out.fail({{errc::canceled}, "too late"});
    in.wait_for_last_words();
    out.wait_for_last_words();
    EXPECT_FALSE(in.failed());
    EXPECT_FALSE(out.failed());
    EXPECT_FALSE(none.is_told.is_set()) << none.sentence;
}

TEST(fastflow_failure, by_default_ends_the_process_with_its_sentence_and_code_1) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(fastflow_options{}.on_failure({{errc::disconnected}, "sender 1 of 1 is lost"}),
                testing::ExitedWithCode(1), "amalgam: sender 1 of 1 is lost\n");
}

}  // namespace
}  // namespace amalgam::detail
