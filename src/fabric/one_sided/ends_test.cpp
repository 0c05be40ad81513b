// How transfers over a device end: by cancel, with their peer, and with their port.
#include <chrono>
#include <memory>

#include <gtest/gtest.h>

#include "fabric/one_sided/two_ports_testing.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

TEST_F(one_sided_test, canceled_transfer_ends_when_the_device_has_let_go) {
    prepare();
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(get(near_, op), posted::pending);
    a_->end->cancel(op);
    for (int i = 0; i < 100; ++i)
        a_->end->progress();
    EXPECT_EQ(op.runs, 0);
    EXPECT_EQ(device_a_.registered, 1u);
    EXPECT_EQ(a_->end->open_operations(), 1u);
    device_a_.stalled = false;
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    EXPECT_EQ(device_a_.registered, 0u);
    EXPECT_EQ(near_, pattern(size));
    region_ = {};
}

TEST_F(one_sided_test, transfers_of_which_the_device_lets_go_at_once_end_once) {
    prepare();
    device_a_.stalled = device_a_.lets_go_at_once = true;
    recorded op, others[2];
    ASSERT_EQ(get(near_, op), posted::pending);
    a_->end->cancel(op);
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    EXPECT_EQ(device_a_.asked_back, 4u);
    EXPECT_EQ(device_a_.registered, 0u);
    EXPECT_EQ(a_->end->open_operations(), 0u);
    for (recorded& each : others)
        ASSERT_EQ(put(near_, each), posted::pending);
    a_->end->close(there_);
    a_until([&] { return others[0].runs > 0 && others[1].runs > 0; });
    for (const recorded& each : others)
        EXPECT_TRUE(each.ended_with(errc::closed));
    EXPECT_EQ(device_a_.registered, 0u);
    region_ = {};
}

TEST_F(one_sided_test, transfer_that_waits_for_room_is_canceled_at_once) {
    device_a_.room = 0;
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    a_->end->cancel(op);
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::canceled));
    EXPECT_TRUE(a_->end->prepare_to_sleep());
    region_ = {};
}

TEST_F(one_sided_test, lost_peer_ends_transfers_once_the_device_lets_go_and_then_is_told) {
    prepare();
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    region_ = {};
    b_.reset();
    for (int i = 0; i < 1000; ++i)
        a_->end->progress();
    EXPECT_EQ(op.runs, 0);
    EXPECT_TRUE(a_->lost.empty());
    op.then = [&] { EXPECT_TRUE(a_->lost.empty()) << "told before its operations ended"; };
    device_a_.stalled = false;
    a_until([&] { return !a_->lost.empty(); });
    EXPECT_TRUE(op.ended_with(errc::disconnected));
}

// "canceled" would say that the target is quiet.
TEST_F(one_sided_test, canceled_transfer_that_loses_its_peer_ends_as_the_connection_did) {
    prepare();
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    a_->end->cancel(op);
    region_ = {};
    b_.reset();
    for (int i = 0; i < 1000; ++i)
        a_->end->progress();
    EXPECT_EQ(op.runs, 0);
    device_a_.stalled = false;
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::disconnected));
}

TEST_F(one_sided_test, piece_that_fails_asks_the_device_for_the_others) {
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    region_ = {};
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::denied));
    EXPECT_EQ(device_a_.asked_back, 3u);
}

TEST_F(one_sided_test, device_that_never_lets_go_of_a_lost_peer_ends_transfers_at_the_limit) {
    port_options options;
    options.silence_limit = std::chrono::milliseconds(50);
    prepare(access::read_write, options);
    device_a_.stalled = true;
    recorded op, other;
    ASSERT_EQ(put(near_, op), posted::pending);
    ASSERT_EQ(get(near_, other), posted::pending);
    region_ = {};
    b_.reset();
    a_until([&] { return !a_->lost.empty(); });
    EXPECT_TRUE(op.ended_with(errc::disconnected));
    EXPECT_TRUE(other.ended_with(errc::disconnected));
    EXPECT_EQ(device_a_.registered, 2u) << "until the device lets go";
    a_until([&] { return a_->end->prepare_to_sleep(); });
    device_a_.stalled = false;
    a_until([&] { return device_a_.registered == 0; });
    EXPECT_EQ(op.runs, 1);
}

TEST_F(one_sided_test, peer_that_is_closed_ends_its_transfers_with_closed) {
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    a_->end->close(there_);
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::closed));
    region_ = {};
}

TEST_F(one_sided_test, port_that_ends_completes_what_a_stalled_device_holds) {
    prepare();
    device_a_.stalled = true;
    recorded op, other;
    ASSERT_EQ(put(near_, op), posted::pending);
    ASSERT_EQ(get(near_, other), posted::pending);
    a_->end->cancel(other);
    for (recorded* each : {&op, &other})
        each->then = [&] { EXPECT_TRUE(device_a_.ended) << "it could still use the memory"; };
    a_.reset();
    EXPECT_TRUE(op.ended_with(errc::closed));
    EXPECT_TRUE(other.ended_with(errc::closed));
    EXPECT_EQ(device_a_.registered, 0u);
    EXPECT_EQ(device_a_.opened, device_a_.closed);
    region_ = {};
}

TEST_F(one_sided_test, port_ends_with_transfers_that_it_had_given_up) {
    port_options options;
    options.silence_limit = std::chrono::milliseconds(50);
    prepare(access::read_write, options);
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    region_ = {};
    b_.reset();
    a_until([&] { return !a_->lost.empty(); });
    EXPECT_EQ(device_a_.registered, 1u);
    a_.reset();
    EXPECT_EQ(op.runs, 1);
    EXPECT_EQ(device_a_.registered, 0u);
    EXPECT_EQ(device_a_.opened, device_a_.closed);
}

TEST_F(one_sided_test, transfers_that_end_while_the_port_ends_have_ended_with_closed) {
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    a_.reset();
    EXPECT_TRUE(op.ended_with(errc::closed));
    region_ = {};
}

}  // namespace
}  // namespace amalgam::detail
