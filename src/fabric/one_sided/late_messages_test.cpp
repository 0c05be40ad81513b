// Transfers of which the device cannot move all: messages go on where it stopped.
#include <algorithm>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/one_sided/two_ports_testing.hpp"

namespace amalgam::detail {
namespace {

class late_messages_test : public one_sided_test {
protected:
    /// The device registers the first `many` of three segments.
    void prepare_halves(std::size_t many) {
        prepare();
        device_a_.most_registrations = many;
        for (std::size_t i = 0; i < 3; ++i) {
            const mutable_bytes part = mutable_bytes(near_).subspan(i * third, third);
            from_parts_.push_back(part);
            into_parts_.push_back(part);
        }
    }
    posted put_parts(recorded& op) { return a_->end->post_put(there_, from_parts_, key_, 10, op); }
    posted get_parts(recorded& op) { return a_->end->post_get(there_, into_parts_, key_, 10, op); }
    bool is_put() const {
        return std::equal(near_.begin(), near_.begin() + 3 * third, far_.begin() + 10);
    }

    static constexpr std::size_t third = 4096 + 5;
    std::vector<const_bytes> from_parts_;
    std::vector<mutable_bytes> into_parts_;
};

TEST_F(late_messages_test, put_goes_on_by_messages_where_memory_cannot_be_registered) {
    for (const std::size_t many : {1, 2}) {
        for (const std::size_t window : {1, 4}) {
            for (const std::size_t room : {1, 16}) {
                device_a_ = device_b_ = {};
                device_a_.facts.window = window;
                device_a_.room = room;
                from_parts_.clear();
                prepare_halves(many);
                recorded op;
                ASSERT_EQ(put_parts(op), posted::pending);
                both_until([&] { return op.runs > 0; });
                EXPECT_TRUE(op.ended_with(errc::ok)) << many << window << room;
                EXPECT_EQ(op.bytes, 3 * third);
                EXPECT_TRUE(is_put());
                EXPECT_EQ(device_a_.copied_bytes, many * third) << "each byte went once";
                EXPECT_EQ(device_a_.registered, 0u);
                EXPECT_EQ(a_->end->open_operations(), 0u);
                region_ = {};
                a_.reset();
                b_.reset();
            }
        }
    }
}

TEST_F(late_messages_test, get_goes_on_by_messages_where_memory_cannot_be_registered) {
    prepare_halves(1);
    const std::vector<std::byte> told = testing_support::pattern(size, 5);
    std::copy(told.begin(), told.end(), far_.begin());
    recorded op;
    ASSERT_EQ(get_parts(op), posted::pending);
    both_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(op.bytes, 3 * third);
    EXPECT_TRUE(is_put());
    EXPECT_EQ(device_a_.copied_bytes, third);
    region_ = {};
}

TEST_F(late_messages_test, notice_does_not_overtake_what_messages_go_on_with) {
    prepare_halves(1);
    struct told_puts final : message_sink {
        void on_message(message&) noexcept override {}
        void on_put(const put_notice&) noexcept override {
            ++told;
            EXPECT_TRUE(all_is_put());
        }
        std::function<bool()> all_is_put;
        int told = 0;
    } sink;
    sink.all_is_put = [this] { return is_put(); };
    b_->end->set_sink(&sink);
    recorded op, noticed;
    ASSERT_EQ(put_parts(op), posted::pending);
    ASSERT_EQ(a_->end->post_put_notify(there_, {}, key_, 0, 1, noticed), posted::pending);
    both_until([&] { return noticed.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_TRUE(noticed.ended_with(errc::ok));
    EXPECT_EQ(sink.told, 1);
    b_->end->set_sink(b_.get());
    region_ = {};
}

TEST_F(late_messages_test, messages_move_what_the_device_says_it_does_not_support) {
    for (const std::size_t many : {0, 1, 3}) {
        device_a_ = device_b_ = {};
        prepare();
        device_a_.most_started = many;
        recorded op;
        ASSERT_EQ(put(near_, op), posted::pending);
        both_until([&] { return op.runs > 0; });
        EXPECT_TRUE(op.ended_with(errc::ok));
        EXPECT_EQ(op.bytes, size);
        EXPECT_EQ(far_, near_);
        EXPECT_EQ(device_a_.copied_bytes, many * 4096);
        region_ = {};
        a_.reset();
        b_.reset();
    }
}

TEST_F(late_messages_test, put_that_messages_will_go_on_with_is_canceled) {
    prepare_halves(1);
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put_parts(op), posted::pending);
    a_->end->cancel(op);
    a_->end->progress();
    EXPECT_EQ(op.runs, 0) << "the device holds its first part";
    device_a_.stalled = false;
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    EXPECT_EQ(far_, std::vector<std::byte>(size));
    a_until([&] { return a_->end->prepare_to_sleep(); });
    region_ = {};
}

TEST_F(late_messages_test, put_that_messages_go_on_with_is_canceled) {
    prepare_halves(1);
    recorded op;
    ASSERT_EQ(put_parts(op), posted::pending);
    a_until([&] { return device_a_.copied_bytes == third; });
    EXPECT_FALSE(a_->end->prepare_to_sleep()) << "it waits to be handed over";
    a_->end->progress();
    EXPECT_EQ(op.runs, 0);
    a_->end->cancel(op);
    both_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    region_ = {};
}

TEST_F(late_messages_test, put_that_waits_for_messages_is_canceled_at_once) {
    prepare_halves(1);
    recorded op;
    ASSERT_EQ(put_parts(op), posted::pending);
    a_until([&] { return device_a_.copied_bytes == third; });
    a_->end->cancel(op);
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    EXPECT_EQ(a_->end->open_operations(), 0u);
    region_ = {};
}

TEST_F(late_messages_test, lost_peer_ends_a_put_that_messages_would_go_on_with) {
    prepare_halves(1);
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put_parts(op), posted::pending);
    region_ = {};
    b_.reset();
    for (int i = 0; i < 1000; ++i)
        a_->end->progress();
    EXPECT_EQ(op.runs, 0);
    device_a_.stalled = false;
    a_until([&] { return !a_->lost.empty(); });
    EXPECT_TRUE(op.ended_with(errc::disconnected));
}

}  // namespace
}  // namespace amalgam::detail
