// Notified puts against a transport played by the test.
#include <vector>

#include <gtest/gtest.h>

#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

class notify_test : public testing::Test {
protected:
    static constexpr std::size_t size = 3 * limits::rma_piece_bytes + 1000;  // Four pieces.

    notify_test() {
        key_.secret = 1;
        key_.bytes = 2 * size;
        key_.rights = access::read_write;
        port_.set_sink(&heard_);
        region_ = port_.open_region({&whole_, 1}, access::read_write).value();
    }
    posted put(std::size_t bytes, std::uint64_t offset, recorded& op) {
        from_ = const_bytes(memory_).first(bytes);
        return port_.post_put_notify(link_.peer, {&from_, 1}, key_, offset, 0x77, op);
    }
    delivery answer(std::uint64_t tag, errc code) {
        std::vector<std::byte> payload(rma_status_bytes);
        write_status(payload.data(), {code});
        return port_.deliver_bytes(link_, frame_kind::rma_done, tag, payload);
    }
    /// A peer's frame. `notice`: of a put_notify.
    std::vector<std::byte> asked(frame_kind kind, const remote_key& key, std::uint64_t offset,
                                 std::uint64_t bytes, const_bytes data) {
        const bool notifies = kind == frame_kind::put_notify;
        std::vector<std::byte> payload(notifies ? rma_notify_bytes : rma_request_bytes);
        write_request(payload.data(), {key, offset, bytes});
        if (notifies) store_le(payload.data() + rma_request_bytes, std::uint64_t{0x88});
        payload.insert(payload.end(), data.begin(), data.end());
        return payload;
    }
    delivery ask(std::uint64_t tag, frame_kind kind, const remote_key& key, std::uint64_t offset,
                 std::uint64_t bytes, const_bytes data) {
        return port_.deliver_bytes(link_, kind, tag, asked(kind, key, offset, bytes, data));
    }
    errc answered() { return read_status(link_.out.back().payload.data()).code; }

    struct heard final : message_sink {
        std::vector<put_notice> all;
        std::function<void()> then;
        void on_message(message&) noexcept override {}
        void on_put(const put_notice& one) noexcept override {
            all.push_back(one);
            if (then) then();
        }
    };
    heard heard_;
    recorded op_, other_;
    remote_key key_;
    const_bytes from_;
    std::vector<std::byte> memory_ = pattern(size);
    std::vector<std::byte> owned_ = std::vector<std::byte>(400000);
    mutable_bytes whole_{owned_};
    scripted_port port_;
    scripted_link& link_ = port_.peer();
    region region_;
};

// ---- initiator

TEST_F(notify_test, last_piece_alone_carries_the_notice_and_the_range_of_all) {
    EXPECT_EQ(put(size, 100, op_), posted::pending);
    ASSERT_EQ(link_.out.size(), 4u);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(link_.out[i].header.kind, frame_kind::put);
    const auto& last = link_.out[3];
    EXPECT_EQ(last.header.kind, frame_kind::put_notify);
    const rma_request request = read_request(last.payload.data());
    EXPECT_EQ(request.key, key_);
    EXPECT_EQ(request.offset, 100u);
    EXPECT_EQ(request.bytes, size);
    EXPECT_EQ(load_le<std::uint64_t>(last.payload.data() + rma_request_bytes), 0x77u);
    EXPECT_EQ(last.payload.size(), rma_notify_bytes + 1000);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(op_.runs, 0);
        (void)answer(last.header.tag, errc::ok);
    }
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(op_.bytes, size);
}

TEST_F(notify_test, canceled_before_its_last_piece_left_never_sends_that) {
    link_.answer = posted::pending;
    EXPECT_EQ(put(size, 0, op_), posted::pending);
    port_.cancel(op_);  // The link had begun nothing, and forgets.
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    EXPECT_TRUE(link_.out.empty());
}

TEST_F(notify_test, canceled_after_all_of_it_left_ends_as_the_target_says) {
    for (errc how : {errc::ok, errc::denied}) {
        recorded op;
        (void)put(size, 0, op);
        const std::uint64_t tag = link_.out.back().header.tag;
        port_.cancel(op);
        EXPECT_EQ(op.runs, 0);
        for (int i = 0; i < 3; ++i)
            (void)answer(tag, errc::ok);
        (void)answer(tag, how);
        EXPECT_TRUE(op.ended_with(how == errc::ok ? errc::ok : errc::canceled));
        EXPECT_EQ(op.bytes, how == errc::ok ? size : 0u);
    }
}

TEST_F(notify_test, canceled_keeps_the_memory_of_a_last_piece_that_has_begun) {
    link_.answer = posted::pending;
    link_.forgets = false;
    (void)put(1000, 0, op_);
    port_.cancel(op_);
    EXPECT_TRUE(link_.detached.empty());
    EXPECT_EQ(op_.runs, 0);
    (void)answer(link_.out[0].header.tag, errc::ok);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    // The answer came before the link had said that it was done.
    EXPECT_EQ(link_.detached.size(), 1u);
}

TEST_F(notify_test, unreadable_last_piece_that_has_begun_ends_the_connection) {
    link_.answer = posted::pending;
    (void)put(1000, 0, op_);
    EXPECT_EQ(port_.unreadable(*link_.out[0].on_sent, true), scripted_port::remedy::break_off);
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
}

TEST_F(notify_test, unreadable_piece_before_a_notice_that_is_queued_ends_the_connection) {
    link_.answer = posted::pending;
    (void)put(size, 0, op_);
    ASSERT_EQ(link_.out.size(), 4u);
    for (bool begun : {true, false})
        EXPECT_EQ(port_.unreadable(*link_.out[1].on_sent, begun), scripted_port::remedy::break_off);
    // The last one alone, before it has begun, is only left out.
    EXPECT_EQ(port_.unreadable(*link_.out[3].on_sent, false), scripted_port::remedy::leave_out);
    EXPECT_EQ(port_.unreadable(*link_.out[2].on_sent, true), scripted_port::remedy::blank);
    for (int i = 0; i < 3; ++i)
        (void)answer(link_.out[0].header.tag, errc::ok);
    EXPECT_TRUE(op_.ended_with(errc::invalid));
}

// ---- target

TEST_F(notify_test, notice_is_told_once_its_bytes_are_in_place_and_answered) {
    heard_.then = [&] { EXPECT_EQ(owned_[50], memory_[0]); };
    EXPECT_EQ(
        ask(9, frame_kind::put_notify, region_.key(), 50, 1000, const_bytes(memory_).first(1000)),
        delivery::taken);
    ASSERT_EQ(heard_.all.size(), 1u);
    EXPECT_EQ(heard_.all[0].from, link_.peer);
    EXPECT_EQ(heard_.all[0].region, region_.key().region);
    EXPECT_EQ(heard_.all[0].offset, 50u);
    EXPECT_EQ(heard_.all[0].bytes, 1000u);
    EXPECT_EQ(heard_.all[0].value, 0x88u);
    EXPECT_EQ(answered(), errc::ok);
}

TEST_F(notify_test, frame_without_bytes_tells_of_a_range_that_was_written_before) {
    EXPECT_EQ(ask(9, frame_kind::put_notify, region_.key(), 50, 300'000, {}), delivery::taken);
    ASSERT_EQ(heard_.all.size(), 1u);
    EXPECT_EQ(heard_.all[0].bytes, 300'000u);
    EXPECT_EQ(owned_[50], std::byte{0});
    EXPECT_EQ(ask(9, frame_kind::put_notify, region_.key(), 50, owned_.size(), {}),
              delivery::taken);
    EXPECT_EQ(answered(), errc::denied) << "the whole range is checked";
    EXPECT_EQ(heard_.all.size(), 1u);
}

TEST_F(notify_test, put_of_which_a_piece_was_refused_tells_nothing_and_the_next_one_does) {
    const const_bytes some = const_bytes(memory_).first(8);
    remote_key forged = region_.key();
    forged.secret ^= 1;
    (void)ask(9, frame_kind::put, forged, 0, 8, some);
    EXPECT_EQ(answered(), errc::denied);
    (void)ask(9, frame_kind::put_notify, region_.key(), 0, 16, some);
    EXPECT_EQ(answered(), errc::denied);
    EXPECT_TRUE(heard_.all.empty());
    (void)ask(10, frame_kind::put_notify, region_.key(), 0, 16, some);
    EXPECT_EQ(answered(), errc::ok);
    EXPECT_EQ(heard_.all.size(), 1u);
}

TEST_F(notify_test, notice_of_a_placement_is_told_at_its_end_unless_the_region_closed) {
    for (bool closes : {false, true}) {
        heard_.all.clear();
        const auto payload = asked(frame_kind::put_notify, region_.key(), 10, 100'000,
                                   const_bytes(memory_).first(50'000));
        const auto header = header_of(frame_kind::put_notify, 7, payload.size());
        placement* to = port_.begin_placement(link_, header, const_bytes(payload).first(64));
        ASSERT_NE(to, nullptr);
        segment_cursor at;
        copy_in(to->into, at, const_bytes(payload).subspan(64));
        EXPECT_EQ(owned_[50'010], memory_[0]) << "the last half of the range";
        EXPECT_TRUE(heard_.all.empty());
        if (closes) region_ = region();
        EXPECT_EQ(port_.end_placement(link_), delivery::taken);
        EXPECT_EQ(heard_.all.size(), closes ? 0u : 1u);
        EXPECT_EQ(answered(), closes ? errc::denied : errc::ok);
    }
}

TEST_F(notify_test, ordinary_put_by_a_placement_after_a_notified_one_tells_nothing) {
    for (frame_kind kind : {frame_kind::put_notify, frame_kind::put}) {
        const auto payload =
            asked(kind, region_.key(), 0, 50'000, const_bytes(memory_).first(50'000));
        placement* to = port_.begin_placement(link_, header_of(kind, 7, payload.size()),
                                              const_bytes(payload).first(64));
        ASSERT_NE(to, nullptr);
        (void)port_.end_placement(link_);
    }
    EXPECT_EQ(heard_.all.size(), 1u);
}

TEST_F(notify_test, frames_of_a_wrong_length_are_malformed) {
    const std::vector<std::byte> some(100);
    for (std::size_t bytes : {0u, 1u, 56u, 63u})
        EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::put_notify, 1,
                                      {some.begin(), some.begin() + bytes}),
                  delivery::malformed);
    EXPECT_EQ(ask(1, frame_kind::put_notify, region_.key(), 0, 7, const_bytes(memory_).first(8)),
              delivery::malformed)
        << "more bytes than the range has";
    EXPECT_TRUE(heard_.all.empty());
}

TEST_F(notify_test, peer_that_is_closed_while_it_is_told_of_is_gone) {
    heard_.then = [&] { port_.close(link_.peer); };
    EXPECT_EQ(ask(9, frame_kind::put_notify, region_.key(), 0, 8, const_bytes(memory_).first(8)),
              delivery::gone);
    EXPECT_EQ(heard_.all.size(), 1u);
}

}  // namespace
}  // namespace amalgam::detail
