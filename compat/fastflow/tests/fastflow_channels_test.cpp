// How many channels a node of FastFlow's interface has, which counts those of feedback, and what
// all_gather() takes from them.
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fastflow_testing.hpp"

using namespace ff;
using namespace ff::testing_nodes;

namespace {

/// Inputs, outputs, and how many of either come back or go back.
using channels = std::array<std::size_t, 3>;
channels channels_of(const ff_node& node) {
    return {node.get_num_inchannels(), node.get_num_outchannels(), node.get_num_feedbackchannels()};
}

struct many_in : ff_minode_t<long> {
    long* svc(long* item) override { return item; }
};
struct many_out : ff_monode_t<long> {
    long* svc(long* item) override { return item; }
};

}  // namespace

TEST(fastflow_channels, of_a_loop_s_ends_are_counted_with_those_of_feedback) {
    source before;
    many_in first;
    many_out last;
    many_sink after;
    ff_Pipe<> loop(first, last);
    loop.wrap_around();
    ff_Pipe<> whole(before, loop, after);
    ASSERT_EQ(whole.dryrun(), 0);
    EXPECT_EQ(channels_of(first), (channels{2, 1, 1}));
    EXPECT_EQ(first.get_neos(), 2);
    EXPECT_EQ(first.getgt()->getNWorkers(), 2U);
    EXPECT_EQ(first.getgt()->getrunning(), 2U);
    EXPECT_EQ(channels_of(last), (channels{1, 2, 1}));
    EXPECT_EQ(channels_of(after), (channels{1, 0, 0}));
}

TEST(fastflow_channels, of_an_all_to_all_are_counted_with_those_of_feedback) {
    many_in in0, in1, from0, from1, from2;
    many_out to0, to1, out0, out1, out2;
    ff_comb left0(&in0, &to0), left1(&in1, &to1);
    ff_comb right0(&from0, &out0), right1(&from1, &out1), right2(&from2, &out2);
    ff_a2a sets;
    sets.add_firstset<ff_node>({&left0, &left1});
    sets.add_secondset<ff_node>({&right0, &right1, &right2});
    sets.wrap_around();
    many_sink after;
    ff_Pipe<> whole(sets, after);
    ASSERT_EQ(whole.dryrun(), 0);
    EXPECT_EQ(in1.get_num_inchannels(), 3U);
    EXPECT_EQ(in1.get_num_feedbackchannels(), 3U);
    EXPECT_EQ(to1.get_num_outchannels(), 3U);
    EXPECT_EQ(to1.get_num_feedbackchannels(), 0U);
    EXPECT_EQ(from2.get_num_inchannels(), 2U);
    EXPECT_EQ(from2.get_num_feedbackchannels(), 0U);
    EXPECT_EQ(out2.get_num_outchannels(), 3U);
    EXPECT_EQ(out2.get_num_feedbackchannels(), 2U);
    EXPECT_EQ(after.get_num_inchannels(), 3U);
}

TEST(fastflow_channels, of_a_farm_that_goes_back_are_no_feedback_of_its_emitter) {
    many_out emitter, left, right;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    farm.wrap_around();
    source before;
    many_sink after;
    ff_Pipe<> whole(before, farm, after);
    ASSERT_EQ(whole.dryrun(), 0);
    EXPECT_EQ(channels_of(emitter), (channels{1, 2, 0}));
    EXPECT_EQ(channels_of(left), (channels{1, 2, 1}));
    EXPECT_EQ(channels_of(after), (channels{2, 0, 0}));
}

TEST(fastflow_channels, of_an_emitter_with_several_inputs_are_forward_ones_only) {
    many_in first;
    many_out second, left, right, one, two;
    ff_comb emitter(&first, &second);
    ff_farm before, farm;
    before.add_workers({&one, &two});
    farm.add_emitter(&emitter);
    farm.add_workers({&left, &right});
    farm.wrap_around();
    ff_Pipe<> whole(before, farm);
    ASSERT_EQ(whole.dryrun(), 0);
    EXPECT_EQ(first.get_num_inchannels(), 2U);
    EXPECT_EQ(first.get_num_feedbackchannels(), 0U);
}

namespace {

constexpr long rounds = 20;

/// Each number to all of the next nodes.
struct telling : ff_monode_t<long> {
    long* svc(long*) override {
        for (long i = 1; i <= rounds; ++i)
            for (std::size_t to = 0; to != get_num_outchannels(); ++to)
                ff_send_out_to(new long(i), static_cast<int>(to));
        return EOS;
    }
};
/// The sum of what all_gather() gave, or -1 if one is missing.
long* sum_of(const std::vector<long*>& items) {
    auto sum = std::make_unique<long>(0);
    bool all = !items.empty();
    for (long* each : items) {
        if (each != nullptr) *sum += *each;
        all = all && each != nullptr;
        delete each;
    }
    if (!all) *sum = -1;
    return sum.release();
}

}  // namespace

TEST(fastflow_channels, all_gather_of_a_node_takes_no_item_of_a_feedback_channel) {
    struct gathering : ff_minode_t<long> {
        long* svc(long* item) override {
            std::vector<long*> items;
            const int result = all_gather(item, items);
            if (fromInput()) {
                taken += result == 0 && items.size() == 3;
                return sum_of(items);
            }
            refused += result == -1 && items == std::vector<long*>(3, nullptr);
            sum += *item;
            delete item;
            return ++back == rounds ? EOS : GO_ON;
        }
        long back = 0, taken = 0, refused = 0, sum = 0;
    } first;
    struct turning : ff_monode_t<long> {
        long* svc(long* item) override {
            ff_send_out_to(item, 0);
            return GO_ON;
        }
    } second;
    telling emitter;
    twice one, two, three;
    ff_farm farm;
    farm.add_emitter(&emitter);
    farm.add_workers({&one, &two, &three});
    many_sink last;
    ff_Pipe<> loop(first, second);
    loop.wrap_around();
    ff_Pipe<> whole(farm, loop, last);
    testing::internal::CaptureStderr();
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("all_gather: the item came over feedback channel 0, expected"),
              std::string::npos);
    EXPECT_EQ(first.taken, rounds);
    EXPECT_EQ(first.refused, rounds);
    EXPECT_EQ(first.sum, 3 * rounds * (rounds + 1));
}

TEST(fastflow_channels, all_gather_of_an_emitter_refuses_an_item_that_a_worker_sent_back) {
    struct gathering : ff_monode_t<long> {
        explicit gathering(ff_loadbalancer* of_farm) : lb(of_farm) {}
        long* svc(long* item) override {
            std::vector<long*> items(2, nullptr);
            const int result = lb->all_gather(item, reinterpret_cast<void**>(items.data()));
            if (get_channel_id() < 0) {
                taken += result == 0;
                return sum_of(items);
            }
            refused += result == -1 && items == std::vector<long*>(2, nullptr);
            sum += *item;
            delete item;
            return ++back == rounds ? EOS : GO_ON;
        }
        ff_loadbalancer* lb;
        long back = 0, taken = 0, refused = 0, sum = 0;
    };
    telling emitter;
    twice one, two, left, right;
    ff_farm farm1, farm2;
    farm1.add_emitter(&emitter);
    farm1.add_workers({&one, &two});
    gathering second(farm2.getlb());
    farm2.add_emitter(&second);
    farm2.add_workers({&left, &right});
    farm2.wrap_around();
    ff_Pipe<> whole(farm1, farm2);
    testing::internal::CaptureStderr();
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("all_gather: the item came over feedback channel "), std::string::npos);
    EXPECT_EQ(second.taken, rounds);
    EXPECT_EQ(second.refused, rounds);
    EXPECT_EQ(second.sum, 2 * 2 * rounds * (rounds + 1));
}

TEST(fastflow_channels, an_emitter_that_meets_ends_in_all_gather_ends_with_its_last_input) {
    std::atomic<bool> last_round{false};
    struct telling_one_more : ff_monode_t<long> {
        long* svc(long*) override {
            for (const int to : {0, 1, 2, 0})
                ff_send_out_to(new long(1), to);
            return EOS;
        }
    } emitter;
    /// Its end comes when the emitter of the second farm has its last item.
    struct late : twice {
        void eosnotify(ssize_t) override {
            if (waits != nullptr) waits->wait(false);
        }
        std::atomic<bool>* waits = nullptr;
    } one, two, three;
    two.waits = three.waits = &last_round;
    struct gathering : ff_monode_t<long> {
        gathering(ff_loadbalancer* of_farm, std::atomic<bool>& is_last)
            : lb(of_farm), last(is_last) {}
        long* svc(long* item) override {
            if (++gathered == 2) {
                last = true;
                last.notify_all();
            }
            std::vector<long*> items(3, nullptr);
            results.push_back(lb->all_gather(item, reinterpret_cast<void**>(items.data())));
            return sum_of(items);
        }
        ff_loadbalancer* lb;
        std::atomic<bool>& last;
        int gathered = 0;
        std::vector<int> results;
    };
    ff_farm farm1, farm2;
    farm1.add_emitter(&emitter);
    farm1.add_workers({&one, &two, &three});
    gathering second(farm2.getlb(), last_round);
    twice left, right;
    sink last;
    farm2.add_emitter(&second);
    farm2.add_workers({&left, &right});
    farm2.add_collector(&last);
    ff_Pipe<> whole(farm1, farm2);
    ASSERT_EQ(whole.run_and_wait_end(), 0);
    EXPECT_EQ(second.results, (std::vector<int>{0, -1}));
    EXPECT_EQ(last.sum(), 2 * (2 + 2 + 2) - 2);
}
