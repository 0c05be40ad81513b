#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/flow/detail/fastflow_in.hpp>
#include <amalgam/flow/detail/fastflow_out.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/tasks/event.hpp>

// What the nodes of fastflow.hpp stand on, in threads that are none of FastFlow's: so this test
// needs no FastFlow.
namespace amalgam::detail {
namespace {

/// The failure instead of the end of the process.
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
        // Else it is waited for, as if its items were still leaving.
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

}  // namespace
}  // namespace amalgam::detail
