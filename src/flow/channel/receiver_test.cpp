#include "flow/channel/receiver.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/wire.hpp"
#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

/// Everything runs on one driven stream, so the test decides what happens next.
class receiver_of_batches : public testing::Test {
protected:
    static constexpr std::size_t window = 10'000;

    /// Batch `number` of `sender`, delivered in its own ULT. Its text is its only item.
    void deliver(std::size_t sender, std::uint64_t number, std::string text) {
        posted_.push_back(std::make_unique<std::string>(std::move(text)));
        const std::string& bytes = *posted_.back();
        tasks_.push_back(spawn(stream_, [this, sender, number, &bytes] {
            try {
                receiver::consumed so_far;
                if (tested_.deliver(sender, number, {std::as_bytes(std::span(bytes)), 1}, so_far))
                    credits_.push_back(so_far.bytes);
            } catch (const error& why) {
                refusals_.push_back(why.code().code);
            }
        }));
    }
    void finish(std::size_t sender, std::uint64_t batches) {
        tasks_.push_back(spawn(stream_, [this, sender, batches] {
            try {
                tested_.finish(sender, batches, batches);
                finished_.push_back(sender);
            } catch (const error& why) {
                refusals_.push_back(why.code().code);
            }
        }));
    }
    void consume() {
        tasks_.push_back(spawn(stream_, [this] {
            channel_in::batch got;
            try {
                while (tested_.next(got))
                    consumed_.emplace_back(reinterpret_cast<const char*>(got.bytes.data()),
                                           got.bytes.size());
                ended_ = true;
            } catch (const error& why) {
                consumer_failed_ = why.code().code;
                tested_.release();
            }
        }));
    }
    void run() { stream_.run_ready(); }

    execution_stream stream_{execution_stream_options{.driven = true}};
    receiver tested_{2, {.window_bytes = window}};
    std::vector<std::unique_ptr<std::string>> posted_;
    std::vector<std::uint64_t> credits_;
    std::vector<std::size_t> finished_;
    std::vector<errc> refusals_;
    std::vector<std::string> consumed_;
    bool ended_ = false;
    errc consumer_failed_ = errc::ok;
    std::vector<ult> tasks_;  // Last: joined first.
};

TEST_F(receiver_of_batches, ends_once_every_sender_has_and_everything_was_consumed) {
    consume();
    deliver(0, 0, "a0");
    finish(0, 1);
    deliver(1, 0, "b0");
    run();
    EXPECT_EQ(consumed_, (std::vector<std::string>{"a0", "b0"}));
    EXPECT_EQ(finished_, std::vector<std::size_t>{0});
    EXPECT_FALSE(ended_);
    EXPECT_FALSE(tested_.is_open(0));
    EXPECT_TRUE(tested_.is_open(1));
    finish(1, 1);
    run();
    EXPECT_TRUE(ended_);
    EXPECT_EQ(finished_.size(), 2u);
}

TEST_F(receiver_of_batches, restores_each_senders_order_however_batches_overtake) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        seeded_random random(seed);
        receiver tested(1, {.window_bytes = window});
        std::vector<std::uint64_t> order(20);
        for (std::uint64_t i = 0; i < order.size(); ++i)
            order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::uint32_t> got;
        std::vector<ult> tasks;
        bool ended = false;
        std::uint64_t items = 0;
        tasks.push_back(spawn(stream_, [&] { tested.finish(0, 20, items); }));
        for (std::uint64_t number : order) {
            items += number + 1;
            tasks.push_back(spawn(stream_, [&tested, number] {
                receiver::consumed so_far;
                tested.deliver(0, number, {{}, static_cast<std::uint32_t>(number + 1)}, so_far);
            }));
        }
        tasks.push_back(spawn(stream_, [&] {
            channel_in::batch batch;
            while (tested.next(batch))
                got.push_back(batch.items);
            ended = true;
        }));
        run();
        ASSERT_TRUE(ended);
        ASSERT_EQ(got.size(), 20u);
        EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
    }
}

/// With marks; one sender.
class receiver_of_marks : public testing::Test {
protected:
    void deliver(std::uint64_t number, std::uint32_t items, std::uint64_t content) {
        auto& bytes = *posted_.emplace_back(std::make_unique<std::array<std::byte, 8>>());
        store_le(bytes.data(), content);
        tasks_.push_back(spawn(stream_, [this, number, items, &bytes] {
            try {
                receiver::consumed so_far;
                tested_.deliver(0, number, {bytes, items}, so_far);
                ++delivered_;
            } catch (const error& why) {
                refusals_.push_back(why.code().code);
            }
        }));
    }
    void consume() {
        tasks_.push_back(spawn(stream_, [this] {
            channel_in::batch got;
            while (tested_.next(got))
                taken_.push_back(got.mark != 0 ? 1000 + got.mark
                                               : load_le<std::uint64_t>(got.bytes.data()));
            ended_ = true;
        }));
    }

    execution_stream stream_{execution_stream_options{.driven = true}};
    receiver tested_{1, {.window_bytes = 4096, .takes_marks = true}};
    std::vector<std::unique_ptr<std::array<std::byte, 8>>> posted_;
    std::vector<errc> refusals_;
    std::vector<std::uint64_t> taken_;
    unsigned delivered_ = 0;
    bool ended_ = false;
    std::vector<ult> tasks_;  // Last: joined first.
};

TEST_F(receiver_of_marks, a_wrong_mark_that_overtook_is_told_to_its_sender_and_harms_no_batch) {
    for (const std::uint64_t number : {3, 2})
        deliver(number, 0, 0);  // No checkpoint is 0.
    deliver(1, 1, 7);
    stream_.run_ready();
    deliver(0, 1, 5);
    stream_.run_ready();
    EXPECT_EQ(refusals_, (std::vector<errc>{errc::invalid, errc::invalid}));
    tasks_.push_back(spawn(stream_, [this] { tested_.finish(0, 4, 2); }));
    consume();
    stream_.run_ready();
    EXPECT_EQ(taken_, (std::vector<std::uint64_t>{5, 7}));
    EXPECT_EQ(delivered_, 2u);
    EXPECT_TRUE(ended_);
}

TEST_F(receiver_of_marks, a_sender_whose_mark_came_after_its_end_is_done) {
    consume();
    deliver(0, 1, 5);
    bool finished = false;
    tasks_.push_back(spawn(stream_, [&] {
        tested_.finish(0, 2, 1);
        finished = true;
    }));
    stream_.run_ready();
    EXPECT_FALSE(finished);
    deliver(1, 0, 3);
    stream_.run_ready();
    EXPECT_TRUE(finished);
    EXPECT_EQ(taken_, (std::vector<std::uint64_t>{5, 1003}));
    EXPECT_TRUE(ended_);
}

// Of a loop's way back: nobody waits until a batch was consumed.
TEST_F(receiver_of_batches, copied_batches_count_for_the_sender_they_came_from) {
    receiver tested(2, {.window_bytes = window}, true);
    const auto deliver = [&](std::size_t sender, std::uint64_t number, std::string text) {
        receiver::consumed so_far;
        tested.deliver(sender, number, {std::as_bytes(std::span(text)), 1}, so_far);
        return so_far.items;
    };
    EXPECT_EQ(deliver(1, 0, "b0"), 1u);
    EXPECT_EQ(deliver(1, 1, "b1"), 2u);
    EXPECT_EQ(deliver(0, 0, "a0"), 1u);
    std::vector<std::string> got;
    std::vector<ult> tasks;
    tasks.push_back(spawn(stream_, [&] { tested.finish(0, 1, 1); }));
    tasks.push_back(spawn(stream_, [&] { tested.finish(1, 2, 2); }));
    tasks.push_back(spawn(stream_, [&] {
        channel_in::batch each;
        while (tested.next(each))
            got.emplace_back(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
    }));
    run();
    EXPECT_EQ(got, (std::vector<std::string>{"b0", "b1", "a0"}));
    for (ult& each : tasks)
        each.join();
}

TEST_F(receiver_of_batches, a_batch_is_lent_until_it_was_consumed) {
    deliver(0, 0, "kept");
    run();
    EXPECT_TRUE(credits_.empty());
    EXPECT_EQ(list_ults().at(0).waits_for, "flow batch to be consumed");
    consume();
    run();
    EXPECT_EQ(consumed_, std::vector<std::string>{"kept"});
    // Everything was consumed: the sender, which may have nothing in flight, gets credit at once.
    EXPECT_EQ(credits_, std::vector<std::uint64_t>{4 + limits::batch_overhead});
    finish(0, 1);
    finish(1, 0);
    run();
}

TEST_F(receiver_of_batches, credits_of_a_busy_sender_come_together) {
    const std::size_t each = 200;
    for (std::uint64_t i = 0; i < 40; ++i)
        deliver(0, i, std::string(each, 'x'));
    run();
    consume();
    run();
    EXPECT_EQ(consumed_.size(), 40u);
    EXPECT_EQ(credits_.back(), 40 * (each + limits::batch_overhead));
    EXPECT_LT(credits_.size(), 20u);
    finish(0, 40);
    finish(1, 0);
    run();
}

TEST_F(receiver_of_batches, refuses_what_no_sender_can_mean) {
    consume();
    deliver(0, 0, "once");
    deliver(0, 0, "twice");
    deliver(7, 0, "from nowhere");
    deliver(1, 5000, "early");  // Allowed: it waits.
    run();
    finish(0, 1);
    finish(0, 1);
    deliver(0, 1, "past the end");
    run();
    EXPECT_EQ(refusals_, (std::vector<errc>(4, errc::invalid)));
    tested_.stop();
    run();
}

TEST_F(receiver_of_batches, stopped_lets_everybody_go) {
    deliver(0, 0, "first");
    deliver(0, 2, "early");
    finish(1, 3);
    run();
    tested_.stop();
    consume();
    deliver(0, 1, "late");
    run();
    EXPECT_EQ(refusals_, (std::vector<errc>(4, errc::closed)));
    EXPECT_EQ(consumer_failed_, errc::canceled);
}

TEST_F(receiver_of_batches, a_wrong_number_of_items_is_noticed) {
    consume();
    deliver(0, 0, "one item");
    run();
    tasks_.push_back(spawn(stream_, [this] {
        try {
            tested_.finish(0, 1, 2);
        } catch (const error& why) {
            refusals_.push_back(why.code().code);
        }
    }));
    finish(1, 0);
    run();
    EXPECT_EQ(refusals_, std::vector<errc>{errc::invalid});
}

TEST_F(receiver_of_batches, refuses_more_than_its_window) {
    deliver(0, 0, std::string(window / 2, 'x'));
    deliver(0, 1, std::string(window / 2, 'x'));
    deliver(1, 0, "of another sender");
    run();
    EXPECT_TRUE(refusals_.empty()) << "the last one may be large";
    deliver(0, 2, "too much");
    deliver(0, 7, "too much, and early");
    run();
    EXPECT_EQ(refusals_, (std::vector<errc>(2, errc::invalid)));
    tested_.stop();
    run();
}

TEST_F(receiver_of_batches, a_large_last_batch_may_overtake_others) {
    deliver(0, 2, std::string(2 * window, 'x'));
    deliver(0, 1, "second");
    deliver(0, 0, "first");
    run();
    consume();
    run();
    EXPECT_TRUE(refusals_.empty());
    EXPECT_EQ(consumed_.size(), 3u);
    deliver(0, 3, std::string(2 * window, 'x'));
    run();
    EXPECT_TRUE(refusals_.empty()) << "what was used up does not count";
    finish(0, 4);
    finish(1, 0);
    run();
}

TEST_F(receiver_of_batches, who_gets_items_on_demand_may_get_more_than_the_window) {
    const std::string text(100, 'x');
    const auto accepted = [&](std::size_t starving_items) {
        receiver tested(1, {.window_bytes = 64, .starving_items = starving_items});
        std::uint64_t refused = 0;
        std::vector<ult> tasks;
        for (std::uint64_t i = 0; i < 5; ++i)
            tasks.push_back(spawn(stream_, [&, i] {
                receiver::consumed so_far;
                try {
                    tested.deliver(0, i, {std::as_bytes(std::span(text)), 1}, so_far);
                } catch (const error& why) {
                    refused += why.code() == errc::invalid ? 1 : 0;
                }
            }));
        run();
        tested.stop();
        run();
        return 5 - refused;
    };
    EXPECT_EQ(accepted(1), 1u);
    EXPECT_EQ(accepted(3), 3u);
}

TEST_F(receiver_of_batches, refuses_an_end_before_what_has_come) {
    deliver(0, 0, "first");
    deliver(1, 3, "early");
    run();
    finish(0, 0);
    finish(1, 2);
    run();
    EXPECT_EQ(refusals_, (std::vector<errc>(2, errc::invalid)));
    tested_.stop();
    run();
}

TEST_F(receiver_of_batches, refuses_a_batch_without_items) {
    tasks_.push_back(spawn(stream_, [this] {
        receiver::consumed so_far;
        try {
            tested_.deliver(0, 0, {{}, 0}, so_far);
        } catch (const error& why) {
            refusals_.push_back(why.code().code);
        }
    }));
    run();
    EXPECT_EQ(refusals_, std::vector<errc>{errc::invalid});
    tested_.stop();
    run();
}

/// Saves and loads `second` only if `first` says so.
struct choosy {
    template <typename Archive>
    void save(Archive& a) const {
        a(first);
        if (first != 0) a(second);
    }
    template <typename Archive>
    void load(Archive& a) {
        a(first);
        if (first != 0) a(second);
    }
    std::int32_t first = 0, second = 0;
};
static_assert(std::is_trivially_copyable_v<choosy>);

/// A batch_reader asks only whether it is stopped.
struct running_channel final : channel_in {
    bool next(batch&) override { return false; }
    found try_next(batch&) override { return found::end; }
    bool is_ready() const noexcept override { return true; }
    std::uint64_t items_taken() const override { return 0; }
    void release() noexcept override {}
};

TEST(batch_reader, what_an_items_load_leaves_alone_is_not_the_last_items) {
    std::vector<std::byte> bytes;
    for (const choosy& each : {choosy{1, 7}, choosy{0, 0}}) {
        body own;
        archive_writer writer(own);
        writer(each);
        bytes.insert(bytes.end(), own.bytes().begin(), own.bytes().end());
    }
    running_channel from;
    batch_reader<choosy> reader;
    reader.begin({bytes, 2});
    std::vector<std::int32_t> seconds;
    reader.read(2, from, [&](choosy&& each) { seconds.push_back(each.second); });
    EXPECT_EQ(seconds, (std::vector<std::int32_t>{7, 0}));
    EXPECT_TRUE(reader.is_empty());
}

}  // namespace
}  // namespace amalgam::detail
