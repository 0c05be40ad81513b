// After the end of a put or get, however it ended, none of its bytes moves: the memory may be
// reused.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

constexpr std::byte used_again{0x5a};

std::size_t large_bytes() {
    return is_brief() ? 1500000 : 6000000;  // Several times the capacity of links.
}

/// When to cancel: after this many rounds of progress at both ends.
constexpr int moments[] = {0, 1, 2, 5, 13, 40};

/// Reuses `memory` as soon as `op` has ended.
void use_at_end(operation& op, mutable_bytes memory) {
    const auto use = [memory](operation&) { std::fill(memory.begin(), memory.end(), used_again); };
    if (op.over())
        use(op);
    else
        op.then = use;
}

void rounds(const connection& over, int count) {
    for (int i = 0; i < count; ++i) {
        over.a.progress(1);
        over.b.progress(1);
    }
}

TEST_P(transport_suite, canceled_put_moves_no_byte_after_its_end) {
    connection over = connected_pair();
    const const_bytes out = patterned(large_bytes(), 1);
    mutable_bytes far = zeroed(large_bytes());
    region target = over.b.end().open_region(far, access::write).value();
    for (int after : moments) {
        SCOPED_TRACE("canceled after " + std::to_string(after));
        operation& op = start(over.a, request::put(over.b_at_a, {out}, target.key(), 0));
        use_at_end(op, far);
        rounds(over, after);
        if (op.pending()) over.a.cancel(op);
        finish(op);
        EXPECT_TRUE(op.code() == errc::canceled || op.code() == errc::ok) << name(op.code());
        flush(over);
        EXPECT_TRUE(is_all(far, used_again));
        EXPECT_EQ(over.a.end().open_operations(), 0u);
    }
}

TEST_P(transport_suite, canceled_get_moves_no_byte_after_its_end) {
    connection over = connected_pair();
    mutable_bytes near = zeroed(large_bytes());
    region source = over.b.end().open_region(patterned(large_bytes(), 1), access::read).value();
    for (int after : moments) {
        SCOPED_TRACE("canceled after " + std::to_string(after));
        operation& op = start(over.a, request::get(over.b_at_a, {near}, source.key(), 0));
        use_at_end(op, near);
        rounds(over, after);
        if (op.pending()) over.a.cancel(op);
        finish(op);
        flush(over);
        flush({over.b, over.a, over.a_at_b, over.b_at_a});
        EXPECT_TRUE(is_all(near, used_again));
        EXPECT_EQ(over.a.end().open_operations(), 0u);
    }
}

TEST_P(transport_suite, local_bytes_of_a_canceled_put_are_free_at_its_end) {
    connection over = connected_pair();
    const const_bytes out = patterned(large_bytes(), 1);
    mutable_bytes mine = zeroed(large_bytes());
    mutable_bytes far = zeroed(large_bytes());
    region target = over.b.end().open_region(far, access::write).value();
    for (int after : moments) {
        std::copy(out.begin(), out.end(), mine.begin());
        operation& op = start(over.a, request::put(over.b_at_a, {mine}, target.key(), 0));
        use_at_end(op, mine);
        rounds(over, after);
        if (op.pending()) over.a.cancel(op);
        finish(op);
        flush(over);
        const auto not_sent = [&](const std::byte& at) {
            return at != std::byte{0} && at != out[static_cast<std::size_t>(&at - far.data())];
        };
        EXPECT_EQ(std::count_if(far.begin(), far.end(), not_sent), 0);
        std::fill(far.begin(), far.end(), std::byte{0});
    }
}

TEST_P(transport_suite, put_after_a_canceled_one_to_the_same_bytes_is_whole) {
    connection over = connected_pair();
    const const_bytes first = patterned(large_bytes(), 1);
    const const_bytes second = patterned(large_bytes(), 2);
    mutable_bytes far = zeroed(large_bytes());
    region target = over.b.end().open_region(far, access::write).value();
    for (int after : moments) {
        operation& early = start(over.a, request::put(over.b_at_a, {first}, target.key(), 0));
        rounds(over, after);
        if (early.pending()) over.a.cancel(early);
        operation& late = complete(over.a, request::put(over.b_at_a, {second}, target.key(), 0));
        EXPECT_EQ(late.code(), errc::ok);
        EXPECT_TRUE(is_pattern(far, 2));
        finish(early);
        flush(over);
        EXPECT_TRUE(is_pattern(far, 2));
    }
}

TEST_P(transport_suite, refused_put_ends_when_all_that_left_was_answered) {
    connection over = connected_pair();
    const const_bytes out = patterned(large_bytes(), 1);
    mutable_bytes far = zeroed(large_bytes());
    for (int after : moments) {
        region target = over.b.end().open_region(far, access::write).value();
        operation& op = start(over.a, request::put(over.b_at_a, {out}, target.key(), 0));
        rounds(over, after);
        target = region();
        std::fill(far.begin(), far.end(), used_again);  // Nobody can access it any more.
        if (after % 2 == 0 && op.pending()) over.a.cancel(op);
        finish(op);
        EXPECT_TRUE(op.code() == errc::denied || op.code() == errc::canceled ||
                    op.code() == errc::ok)
            << name(op.code());
        flush(over);
        EXPECT_TRUE(is_all(far, used_again));
        EXPECT_EQ(over.a.end().open_operations(), 0u);
    }
}

TEST_P(transport_suite, canceled_transfers_whose_connection_is_closed_end_once) {
    node& server = open();
    const const_bytes out = patterned(large_bytes(), 1);
    mutable_bytes far = zeroed(large_bytes());
    mutable_bytes near = zeroed(large_bytes());
    region target = server.end().open_region(far, access::read_write).value();
    for (int after : moments) {
        connection over = connect(open(), server);
        operation& put = start(over.a, request::put(over.b_at_a, {out}, target.key(), 0));
        operation& get = start(over.a, request::get(over.b_at_a, {near}, target.key(), 0));
        rounds(over, after);
        for (operation* op : {&put, &get})
            if (op->pending()) over.a.cancel(*op);
        over.a.close(over.b_at_a);
        finish({&put, &get});
        for (operation* op : {&put, &get})
            EXPECT_TRUE(op->code() == errc::closed || op->code() == errc::canceled ||
                        op->code() == errc::ok)
                << name(op->code());
        EXPECT_EQ(over.a.end().open_operations(), 0u);
        until("the other side to notice", [&] { return over.b.has_lost(over.a_at_b); });
        std::fill(far.begin(), far.end(), used_again);
        move();
        EXPECT_TRUE(is_all(far, used_again));
    }
}

TEST_P(transport_suite, canceled_put_into_a_process_that_stands_still_ends_when_that_goes_on) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    child_process& process = spawn([this](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    const served told = served::from_text(hear(process));
    const peer_id peer = reach(*this, here, told.address);
    process.freeze();
    const const_bytes out = patterned(served_bytes, 1);
    operation& op = start(here, request::put(peer, {out}, told.key, 0));
    for (int i = 0; i < 20; ++i)
        move();
    const bool was_pending = op.pending();
    if (was_pending) here.cancel(op);
    for (int i = 0; i < 20; ++i)
        move();
    EXPECT_EQ(op.pending(), was_pending) << "bytes of it are on their way";
    process.thaw();
    finish(op);
    EXPECT_EQ(op.code(), was_pending ? errc::canceled : errc::ok);

    // Whatever arrived has arrived: it does not change any more.
    mutable_bytes then = zeroed(served_bytes), later = zeroed(served_bytes);
    for (mutable_bytes each : {then, later}) {
        EXPECT_EQ(complete(here, request::get(peer, {each}, told.key, 0)).code(), errc::ok);
        expect_echo(*this, here, peer);
    }
    EXPECT_TRUE(are_same(then, later));
    EXPECT_EQ(here.end().open_operations(), 0u);
}

TEST_P(transport_suite, canceled_put_into_a_process_that_is_killed_ends_with_it) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    if (!can(&capabilities::isolates_killed)) GTEST_SKIP() << "its carrier may stand still then";
    child_process& process = spawn([this](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    const served told = served::from_text(hear(process));
    const peer_id peer = reach(*this, here, told.address);
    process.freeze();
    operation& op = start(here, request::put(peer, {patterned(served_bytes, 1)}, told.key, 0));
    for (int i = 0; i < 20; ++i)
        move();
    const bool was_pending = op.pending();
    if (was_pending) here.cancel(op);
    process.kill();
    finish(op);
    EXPECT_EQ(op.code(), was_pending ? errc::disconnected : errc::ok);
    EXPECT_EQ(here.end().open_operations(), 0u);
}

}  // namespace
}  // namespace amalgam::conformance
