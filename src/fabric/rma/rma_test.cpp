// Put and get over frames, against a transport played by the test: what correct and malicious peers
// send. Whole transfers are tested over real transports.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

std::vector<std::byte> status_payload(errc code) {
    std::vector<std::byte> payload(rma_status_bytes);
    write_status(payload.data(), {code, 7});
    return payload;
}

std::vector<std::byte> data_payload(std::uint64_t offset, const_bytes data) {
    std::vector<std::byte> payload(rma_data_prefix_bytes);
    store_le(payload.data(), offset);
    payload.insert(payload.end(), data.begin(), data.end());
    return payload;
}

std::vector<std::byte> request_payload(const remote_key& key, std::uint64_t offset,
                                       std::uint64_t bytes, const_bytes data = {}) {
    std::vector<std::byte> payload(rma_request_bytes);
    write_request(payload.data(), {key, offset, bytes});
    payload.insert(payload.end(), data.begin(), data.end());
    return payload;
}

class rma_test : public testing::Test {
protected:
    static constexpr std::size_t size = 3 * limits::rma_piece_bytes + 1000;  // Four pieces.

    rma_test() {
        key_.secret = 1;
        key_.bytes = size + 10000;
        key_.rights = access::read_write;
    }
    posted put(const_bytes from, std::uint64_t offset, recorded& op) {
        from_ = from;
        return port_.post_put(link_.peer, {&from_, 1}, key_, offset, op);
    }
    posted get(mutable_bytes into, std::uint64_t offset, recorded& op) {
        into_ = into;
        return port_.post_get(link_.peer, {&into_, 1}, key_, offset, op);
    }
    delivery answer(std::uint64_t tag, errc code) {
        return port_.deliver_bytes(link_, frame_kind::rma_done, tag, status_payload(code));
    }
    delivery data(std::uint64_t tag, std::uint64_t offset, const_bytes bytes) {
        return port_.deliver_bytes(link_, frame_kind::get_data, tag, data_payload(offset, bytes));
    }
    status answered() { return read_status(link_.out.back().payload.data()); }

    recorded op_, other_;
    remote_key key_;
    const_bytes from_;
    mutable_bytes into_;
    std::vector<std::byte> memory_ = pattern(size);
    scripted_port port_;
    scripted_link& link_ = port_.peer();
};

// ---- initiator

TEST_F(rma_test, a_put_is_done_when_every_piece_is_answered) {
    EXPECT_EQ(put(memory_, 100, op_), posted::pending);
    ASSERT_EQ(link_.out.size(), 4u);
    std::uint64_t done = 0;
    for (const auto& frame : link_.out) {
        EXPECT_EQ(frame.header.kind, frame_kind::put);
        const rma_request request = read_request(frame.payload.data());
        EXPECT_EQ(request.key, key_);
        EXPECT_EQ(request.offset, 100 + done);
        EXPECT_EQ(request.bytes, frame.payload.size() - rma_request_bytes);
        EXPECT_EQ(std::memcmp(frame.payload.data() + rma_request_bytes, memory_.data() + done,
                              request.bytes),
                  0);
        done += request.bytes;
    }
    EXPECT_EQ(done, size);
    const std::uint64_t tag = link_.out[0].header.tag;
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(op_.runs, 0);
        EXPECT_EQ(answer(tag, errc::ok), delivery::taken);
    }
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(op_.bytes, size);
}

TEST_F(rma_test, a_get_lands_in_order_in_scattered_memory) {
    std::vector<std::byte> local(size);
    const mutable_bytes pieces[] = {
        mutable_bytes(local).first(10), {}, mutable_bytes(local).subspan(10)};
    EXPECT_EQ(port_.post_get(link_.peer, pieces, key_, 5, op_), posted::pending);
    ASSERT_EQ(link_.out.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
        const auto& frame = link_.out[i];
        const rma_request request = read_request(frame.payload.data());
        const const_bytes part = const_bytes(memory_).subspan(request.offset - 5, request.bytes);
        if (i % 2 == 0) {  // Either whole or by a placement, as transports may do.
            EXPECT_EQ(data(frame.header.tag, request.offset, part), delivery::taken);
            continue;
        }
        const auto payload = data_payload(request.offset, part);
        const auto header = header_of(frame_kind::get_data, frame.header.tag, payload.size());
        placement* to = port_.begin_placement(link_, header, const_bytes(payload).first(64));
        ASSERT_NE(to, nullptr);
        segment_cursor at;
        copy_in(to->into, at, const_bytes(payload).subspan(64));
        EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    }
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(local, memory_);
}

TEST_F(rma_test, empty_transfers_ask_the_target_all_the_same) {
    EXPECT_EQ(put({}, 0, op_), posted::pending);
    EXPECT_EQ(get({}, 0, other_), posted::pending);
    ASSERT_EQ(link_.out.size(), 2u);
    (void)answer(link_.out[0].header.tag, errc::ok);
    (void)data(link_.out[1].header.tag, 0, {});
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(rma_test, a_refused_put_ends_so_when_all_its_pieces_are_answered) {
    (void)put(memory_, 0, op_);
    const std::uint64_t tag = link_.out[0].header.tag;
    EXPECT_EQ(answer(tag, errc::ok), delivery::taken);
    EXPECT_EQ(answer(tag, errc::denied), delivery::taken);
    EXPECT_EQ(answer(tag, errc::too_large), delivery::taken);
    EXPECT_EQ(op_.runs, 0);  // The last piece may still be written.
    EXPECT_EQ(answer(tag, errc::ok), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::denied));
    EXPECT_EQ(op_.bytes, 0u);
    EXPECT_EQ(op_.what.native, 7);
    EXPECT_EQ(answer(tag, errc::ok), delivery::taken);  // Matches no operation.
    EXPECT_EQ(op_.runs, 1);
}

TEST_F(rma_test, a_refused_put_sends_no_more_and_lets_others_pass) {
    std::vector<std::byte> big(100 * limits::rma_piece_bytes);
    key_.bytes = big.size();
    (void)put(big, 0, op_);
    ASSERT_EQ(link_.out.size(), limits::rma_window);
    const std::uint64_t tag = link_.out[0].header.tag;
    (void)put(const_bytes(memory_).first(8), 0, other_);
    (void)answer(tag, errc::denied);
    ASSERT_EQ(link_.out.size(), limits::rma_window + 1);
    EXPECT_NE(link_.out.back().header.tag, tag);
    for (std::size_t i = 1; i < limits::rma_window; ++i) {
        EXPECT_EQ(op_.runs, 0);
        (void)answer(tag, errc::ok);
    }
    EXPECT_TRUE(op_.ended_with(errc::denied));
    EXPECT_EQ(link_.out.size(), limits::rma_window + 1);
    (void)answer(link_.out.back().header.tag, errc::ok);
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(rma_test, a_canceled_put_ends_when_all_that_left_is_answered_or_the_link_goes) {
    (void)put(memory_, 0, op_);
    const std::uint64_t tag = link_.out[0].header.tag;
    port_.cancel(op_);
    port_.cancel(op_);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(op_.runs, 0);
        (void)answer(tag, i == 1 ? errc::denied : errc::ok);
    }
    EXPECT_TRUE(op_.ended_with(errc::canceled));

    (void)put(memory_, 0, other_);
    port_.cancel(other_);
    EXPECT_EQ(other_.runs, 0);
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    EXPECT_TRUE(other_.ended_with(errc::disconnected));
    EXPECT_EQ(port_.open_operations(), 0u);
}

TEST_F(rma_test, a_late_answer_does_not_touch_the_operation_that_follows_in_the_slot) {
    (void)put(const_bytes(memory_).first(8), 0, op_);
    const std::uint64_t old = link_.out.back().header.tag;
    EXPECT_EQ(answer(old, errc::ok), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    (void)put(const_bytes(memory_).first(8), 0, other_);
    EXPECT_NE(link_.out.back().header.tag, old);
    EXPECT_EQ(answer(old, errc::denied), delivery::taken);
    EXPECT_EQ(other_.runs, 0);
    EXPECT_EQ(answer(link_.out.back().header.tag, errc::ok), delivery::taken);
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(rma_test, answers_of_another_peer_do_not_count) {
    (void)put(const_bytes(memory_).first(8), 0, op_);
    scripted_link& stranger = port_.peer();
    EXPECT_EQ(port_.deliver_bytes(stranger, frame_kind::rma_done, link_.out[0].header.tag,
                                  status_payload(errc::ok)),
              delivery::taken);
    EXPECT_EQ(op_.runs, 0);
}

TEST_F(rma_test, data_that_was_not_asked_for_is_malformed_and_written_nowhere) {
    std::vector<std::byte> local(1000);
    (void)get(local, 100, op_);
    const std::uint64_t tag = link_.out[0].header.tag;
    const const_bytes right = const_bytes(memory_).first(1000);
    EXPECT_EQ(data(tag, 99, right), delivery::malformed);
    EXPECT_EQ(data(tag, 100, right.first(999)), delivery::malformed);
    EXPECT_EQ(data(tag, 100, const_bytes(memory_).first(1001)), delivery::malformed);
    EXPECT_EQ(answer(tag, errc::ok), delivery::malformed);
    EXPECT_EQ(local, std::vector<std::byte>(1000));

    (void)put(right, 0, other_);
    EXPECT_EQ(data(link_.out[1].header.tag, 0, right), delivery::malformed);
}

TEST_F(rma_test, frames_of_a_wrong_length_are_malformed) {
    const std::vector<std::byte> some(100);
    for (frame_kind kind :
         {frame_kind::put, frame_kind::get, frame_kind::get_data, frame_kind::rma_done})
        for (std::size_t bytes : {0u, 1u, 7u})
            EXPECT_EQ(port_.deliver_bytes(link_, kind, 1, {some.begin(), some.begin() + bytes}),
                      delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::get, 1, some), delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::rma_done, 1, some), delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::put, 1,
                                  request_payload(key_, 0, 9, const_bytes(some).first(8))),
              delivery::malformed);
    const auto header = header_of(frame_kind::put, 1, 1000000);
    EXPECT_EQ(port_.begin_placement(link_, header, const_bytes(some).first(64)), nullptr);
}

TEST_F(rma_test, what_the_key_does_not_allow_is_denied_without_a_frame) {
    EXPECT_EQ(put(memory_, key_.bytes - size + 1, op_), posted::pending);
    EXPECT_EQ(get(memory_, ~std::uint64_t{0}, other_), posted::pending);
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::denied));
    EXPECT_TRUE(other_.ended_with(errc::denied));
    recorded third;
    key_.rights = access::read;
    (void)put(memory_, 0, third);
    port_.settle_down();
    EXPECT_TRUE(third.ended_with(errc::denied));
    EXPECT_TRUE(link_.out.empty());
}

TEST_F(rma_test, a_full_link_takes_nothing_of_the_first_piece_and_the_rest_when_it_is_writable) {
    link_.answer = posted::full;
    EXPECT_EQ(put(memory_, 0, op_), posted::full);
    EXPECT_EQ(get(memory_, 0, op_), posted::full);
    EXPECT_EQ(port_.open_operations(), 0u);

    link_.answer = posted::done;
    (void)put(const_bytes(memory_).first(1), 0, op_);  // So that there is one to answer.
    std::vector<std::byte> big(100 * limits::rma_piece_bytes);
    key_.bytes = big.size();
    EXPECT_EQ(put(big, 0, other_), posted::pending);
    EXPECT_EQ(link_.out.size(), limits::rma_window);
    link_.answer = posted::full;
    (void)answer(link_.out[0].header.tag, errc::ok);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(link_.out.size(), limits::rma_window);
    link_.answer = posted::done;
    port_.writable(link_);
    EXPECT_EQ(link_.out.size(), limits::rma_window + 1);
    for (std::size_t i = 1; i < 101; ++i)
        ASSERT_EQ(answer(link_.out[i].header.tag, errc::ok), delivery::taken);
    EXPECT_EQ(link_.out.size(), 101u);
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(rma_test, a_canceled_put_takes_back_what_the_link_still_holds) {
    link_.answer = posted::pending;
    (void)put(memory_, 0, op_);
    ASSERT_EQ(link_.out.size(), 4u);
    port_.cancel(op_);
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    EXPECT_TRUE(link_.out.empty());
    EXPECT_TRUE(link_.detached.empty());

    (void)put(memory_, 0, other_);
    link_.forgets = false;
    port_.cancel(other_);
    EXPECT_EQ(link_.detached.size(), 4u);  // Our memory is free, but theirs is not yet.
    EXPECT_EQ(other_.runs, 0);
    for (int i = 0; i < 4; ++i)
        (void)answer(link_.out[0].header.tag, errc::ok);
    EXPECT_TRUE(other_.ended_with(errc::canceled));
}

TEST_F(rma_test, pieces_that_never_left_do_not_use_up_the_window) {
    link_.answer = posted::pending;
    for (std::size_t i = 0; i < limits::rma_window; ++i) {
        recorded one;
        (void)put(memory_, 0, one);
        port_.cancel(one);
    }
    link_.answer = posted::done;
    (void)put(const_bytes(memory_).first(8), 0, op_);
    ASSERT_EQ(link_.out.size(), 1u);
}

TEST_F(rma_test, a_get_canceled_while_it_lands_lets_go_of_its_memory) {
    std::vector<std::byte> local(1000);
    (void)get(local, 0, op_);
    const auto payload = data_payload(0, const_bytes(memory_).first(1000));
    const auto header = header_of(frame_kind::get_data, link_.out[0].header.tag, payload.size());
    placement* to = port_.begin_placement(link_, header, const_bytes(payload).first(64));
    ASSERT_NE(to, nullptr);
    EXPECT_FALSE(to->discard);
    port_.cancel(op_);
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    EXPECT_TRUE(to->discard);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_EQ(op_.runs, 1);
}

// ---- target

class rma_target_test : public rma_test {
protected:
    rma_target_test() { region_ = port_.open_region({&whole_, 1}, access::read_write).value(); }

    delivery ask(frame_kind kind, const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                 const_bytes data = {}) {
        return port_.deliver_bytes(link_, kind, 99, request_payload(key, offset, bytes, data));
    }

    std::vector<std::byte> owned_ = std::vector<std::byte>(400000);
    mutable_bytes whole_{owned_};
    region region_;
};

TEST_F(rma_target_test, a_put_is_written_and_answered) {
    EXPECT_EQ(ask(frame_kind::put, region_.key(), 50, 1000, const_bytes(memory_).first(1000)),
              delivery::taken);
    ASSERT_EQ(link_.out.size(), 1u);
    EXPECT_EQ(link_.out[0].header.kind, frame_kind::rma_done);
    EXPECT_EQ(link_.out[0].header.tag, 99u);
    EXPECT_TRUE(answered().ok());
    EXPECT_EQ(std::memcmp(owned_.data() + 50, memory_.data(), 1000), 0);
    EXPECT_EQ(owned_[49], std::byte{0});
}

TEST_F(rma_target_test, a_forged_key_is_denied_and_touches_nothing) {
    remote_key forged = region_.key();
    forged.secret ^= 1;
    EXPECT_EQ(ask(frame_kind::put, forged, 0, 8, const_bytes(memory_).first(8)), delivery::taken);
    EXPECT_EQ(answered().code, errc::denied);
    EXPECT_EQ(ask(frame_kind::get, forged, 0, 8), delivery::taken);
    EXPECT_EQ(link_.out.back().header.kind, frame_kind::rma_done);
    EXPECT_EQ(answered().code, errc::denied);
    EXPECT_EQ(
        ask(frame_kind::put, region_.key(), owned_.size() - 7, 8, const_bytes(memory_).first(8)),
        delivery::taken);
    EXPECT_EQ(answered().code, errc::denied);
    EXPECT_EQ(owned_, std::vector<std::byte>(owned_.size()));
}

TEST_F(rma_target_test, a_large_put_lands_in_the_region_and_a_denied_one_nowhere) {
    const auto payload =
        request_payload(region_.key(), 100, 5000, const_bytes(memory_).first(5000));
    const auto header = header_of(frame_kind::put, 99, payload.size());
    placement* to = port_.begin_placement(link_, header, const_bytes(payload).first(64));
    ASSERT_NE(to, nullptr);
    ASSERT_EQ(to->into.size(), 1u);
    EXPECT_EQ(to->into[0].data(), owned_.data() + 100 + 8);
    std::memcpy(to->into[0].data(), payload.data() + 64, payload.size() - 64);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_TRUE(answered().ok());
    EXPECT_EQ(std::memcmp(owned_.data() + 100, memory_.data(), 5000), 0);

    remote_key forged = region_.key();
    ++forged.region;
    const auto denied = request_payload(forged, 100, 5000, const_bytes(memory_).first(5000));
    to = port_.begin_placement(link_, header, const_bytes(denied).first(64));
    ASSERT_NE(to, nullptr);
    EXPECT_TRUE(to->discard);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_EQ(answered().code, errc::denied);
}

TEST_F(rma_target_test, closing_a_region_takes_its_memory_back_from_a_landing) {
    const auto payload = request_payload(region_.key(), 0, 5000, const_bytes(memory_).first(5000));
    const auto header = header_of(frame_kind::put, 99, payload.size());
    placement* to = port_.begin_placement(link_, header, const_bytes(payload).first(64));
    region_ = region();
    EXPECT_TRUE(to->discard);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_EQ(answered().code, errc::denied);
}

TEST_F(rma_target_test, a_get_is_answered_from_the_regions_memory) {
    owned_ = pattern(400000, 5);
    whole_ = owned_;
    region_ = port_.open_region({&whole_, 1}, access::read).value();
    EXPECT_EQ(ask(frame_kind::get, region_.key(), 1000, 100000), delivery::taken);
    ASSERT_EQ(link_.out.size(), 1u);
    const auto& frame = link_.out[0];
    EXPECT_EQ(frame.header.kind, frame_kind::get_data);
    EXPECT_EQ(load_le<std::uint64_t>(frame.payload.data()), 1000u);
    ASSERT_EQ(frame.payload.size(), 100008u);
    EXPECT_EQ(std::memcmp(frame.payload.data() + 8, owned_.data() + 1000, 100000), 0);
    EXPECT_EQ(ask(frame_kind::get, region_.key(), 0, limits::rma_piece_bytes + 1), delivery::taken);
    EXPECT_EQ(answered().code, errc::too_large);
}

TEST_F(rma_target_test, closing_a_region_takes_its_memory_back_from_the_link) {
    link_.answer = posted::pending;
    EXPECT_EQ(ask(frame_kind::get, region_.key(), 0, 1000), delivery::taken);
    ASSERT_EQ(link_.out.size(), 1u);
    region_ = region();
    ASSERT_EQ(link_.detached.size(), 1u);
    EXPECT_EQ(link_.detached[0], link_.out[0].on_sent);
}

TEST_F(rma_target_test, answers_to_a_full_link_wait_in_order_and_too_many_pause_it) {
    link_.answer = posted::full;
    delivery last = delivery::taken;
    std::size_t asked = 0;
    for (; last == delivery::taken; ++asked) {
        ASSERT_LT(asked, 1000u);
        last = ask(frame_kind::get, region_.key(), asked, 1);
    }
    EXPECT_EQ(last, delivery::pause);
    EXPECT_GE(asked, limits::rma_window);  // A correct peer's window never pauses its link.
    link_.answer = posted::done;
    port_.writable(link_);
    EXPECT_EQ(link_.resumes, 1);
    ASSERT_EQ(link_.out.size(), asked);
    for (std::size_t i = 0; i < asked; ++i)
        EXPECT_EQ(load_le<std::uint64_t>(link_.out[i].payload.data()), i);
}

TEST_F(rma_target_test, an_answer_that_waited_past_the_regions_end_is_denied) {
    link_.answer = posted::full;
    (void)ask(frame_kind::get, region_.key(), 0, 8);
    region_ = region();
    link_.answer = posted::done;
    port_.writable(link_);
    ASSERT_EQ(link_.out.size(), 1u);
    EXPECT_EQ(link_.out[0].header.kind, frame_kind::rma_done);
    EXPECT_EQ(answered().code, errc::denied);
}

TEST_F(rma_target_test, the_loss_of_a_link_in_the_middle_of_a_put_frees_the_region) {
    const auto payload = request_payload(region_.key(), 0, 5000, const_bytes(memory_).first(5000));
    const auto header = header_of(frame_kind::put, 99, payload.size());
    ASSERT_NE(port_.begin_placement(link_, header, const_bytes(payload).first(64)), nullptr);
    link_.answer = posted::pending;
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    region_ = region();
    EXPECT_TRUE(link_.detached.empty());
}

}  // namespace
}  // namespace amalgam::detail
