// Puts with a notice beside transfers over a device.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/one_sided/two_ports_testing.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

struct noted_puts final : message_sink {
    void on_message(message&) noexcept override {}
    void on_put(const put_notice& one) noexcept override {
        values.push_back(one.value);
        first_bytes.push_back(*memory);
    }
    const std::byte* memory = nullptr;
    std::vector<std::uint64_t> values;
    std::vector<std::byte> first_bytes;
};

TEST_F(one_sided_test, notice_does_not_overtake_a_put_that_the_device_still_moves) {
    prepare();
    noted_puts sink;
    sink.memory = far_.data();
    b_->end->set_sink(&sink);
    device_a_.stalled = true;
    recorded op, noticed;
    ASSERT_EQ(put(near_, op), posted::pending);
    const const_bytes last = const_bytes(near_).last(1);
    const auto post = [&] {
        return a_->end->post_put_notify(there_, {&last, 1}, key_, size - 1, 7, noticed);
    };
    ASSERT_EQ(post(), posted::pending);
    for (int i = 0; i < 1000; ++i) {
        a_->end->progress();
        b_->end->progress();
    }
    EXPECT_TRUE(sink.values.empty());
    device_a_.stalled = false;
    both_until([&] { return noticed.runs > 0 && !sink.values.empty(); });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_TRUE(noticed.ended_with(errc::ok));
    EXPECT_EQ(noticed.bytes, 1u);
    EXPECT_EQ(sink.values, std::vector<std::uint64_t>{7});
    EXPECT_EQ(sink.first_bytes, std::vector<std::byte>{near_[0]});
    b_->end->set_sink(b_.get());
    region_ = {};
}

// Random traffic: every put before a notice is there when it is told, and notices keep their order.
TEST_F(one_sided_test, notices_come_in_order_after_the_puts_before_them) {
    device_a_.room = 3;
    prepare();
    struct all_told final : message_sink {
        void on_message(message&) noexcept override {}
        void on_put(const put_notice& one) noexcept override {
            EXPECT_EQ(one.value, told);
            ++told;
            for (std::size_t i = 0; i < puts_before[one.value].size(); ++i)
                EXPECT_EQ(memory[i], puts_before[one.value][i]);
        }
        std::uint64_t told = 0;
        std::vector<std::vector<std::byte>> puts_before;
        const std::byte* memory = nullptr;
    } sink;
    sink.memory = far_.data();
    b_->end->set_sink(&sink);
    seeded_random dice(11);
    constexpr std::size_t count = 300;
    std::vector<recorded> ops(count);
    std::vector<const_bytes> from(count);
    std::vector<std::byte> model(count);
    near_ = pattern(count, 9);
    for (std::size_t i = 0; i < count; ++i) {
        from[i] = const_bytes(near_).subspan(i, 1);
        model[i] = near_[i];
        posted how;
        if (dice.below(3) == 0) {
            sink.puts_before.emplace_back(model.begin(),
                                          model.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            how = a_->end->post_put_notify(there_, {&from[i], 1}, key_, i,
                                           sink.puts_before.size() - 1, ops[i]);
        } else {
            how = a_->end->post_put(there_, {&from[i], 1}, key_, i, ops[i]);
        }
        ASSERT_EQ(how, posted::pending);
        for (std::size_t n = dice.below(3); n > 0; --n)
            (dice.below(2) == 0 ? a_ : b_)->end->progress();
    }
    both_until(
        [&] { return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.runs == 1; }); });
    for (const recorded& op : ops)
        EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(sink.told, sink.puts_before.size());
    b_->end->set_sink(b_.get());
    region_ = {};
}

TEST_F(one_sided_test, notice_that_waits_is_canceled_at_once_and_lets_those_behind_it_go) {
    prepare();
    noted_puts sink;
    sink.memory = far_.data();
    b_->end->set_sink(&sink);
    device_a_.stalled = true;
    recorded op, canceled, empty;
    ASSERT_EQ(put(near_, op), posted::pending);
    ASSERT_EQ(a_->end->post_put_notify(there_, {&from_, 1}, key_, 0, 7, canceled), posted::pending);
    ASSERT_EQ(a_->end->post_put_notify(there_, {}, key_, 0, 8, empty), posted::pending);
    EXPECT_TRUE(a_->end->prepare_to_sleep());
    a_->end->cancel(canceled);
    a_until([&] { return canceled.runs > 0; });
    EXPECT_TRUE(canceled.ended_with(errc::canceled));
    device_a_.stalled = false;
    both_until([&] { return empty.runs > 0; });
    EXPECT_TRUE(empty.ended_with(errc::ok));
    EXPECT_EQ(sink.values, std::vector<std::uint64_t>{8});
    b_->end->set_sink(b_.get());
    region_ = {};
}

TEST_F(one_sided_test, lost_peer_ends_notices_that_wait) {
    prepare();
    device_a_.stalled = true;
    recorded op, noticed;
    ASSERT_EQ(put(near_, op), posted::pending);
    ASSERT_EQ(a_->end->post_put_notify(there_, {&from_, 1}, key_, 0, 7, noticed), posted::pending);
    region_ = {};
    b_.reset();
    a_until([&] { return noticed.runs > 0; });
    EXPECT_TRUE(noticed.ended_with(errc::disconnected));
    device_a_.stalled = false;
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::disconnected));
}

}  // namespace
}  // namespace amalgam::detail
