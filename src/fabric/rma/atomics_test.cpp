// Atomic operations over frames, against a transport played by the test.
#include <vector>

#include <gtest/gtest.h>

#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

std::vector<std::byte> words(std::initializer_list<std::uint64_t> all) {
    std::vector<std::byte> made(8 * all.size());
    std::byte* to = made.data();
    for (std::uint64_t one : all) {
        store_le(to, one);
        to += 8;
    }
    return made;
}

class atomics_test : public testing::Test {
protected:
    atomics_test() {
        key_.secret = 1;
        key_.bytes = 4096;
        key_.rights = access::read_write;
    }
    posted add(recorded& op) { return port_.post_fetch_add(link_.peer, key_, 16, 5, &old_, op); }
    delivery fetched(std::uint64_t tag, std::uint64_t value) {
        return port_.deliver_bytes(link_, frame_kind::fetched, tag, words({value}));
    }
    delivery ask(frame_kind kind, const remote_key& key, std::uint64_t offset,
                 std::initializer_list<std::uint64_t> operands) {
        const auto begins = key.encode();
        std::vector<std::byte> payload(begins.begin(), begins.end());
        for (const auto& more : {words({offset}), words(operands)})
            payload.insert(payload.end(), more.begin(), more.end());
        return port_.deliver_bytes(link_, kind, 99, payload);
    }

    recorded op_, other_;
    std::uint64_t old_ = 1;
    remote_key key_;
    std::vector<std::uint64_t> numbers_ = std::vector<std::uint64_t>(8);
    mutable_bytes whole_ = std::as_writable_bytes(std::span(numbers_));
    scripted_port port_;
    scripted_link& link_ = port_.peer();
    region region_ = port_.open_region({&whole_, 1}, access::read_write).value();
};

// ---- initiator

TEST_F(atomics_test, request_says_what_to_do_and_the_answer_ends_it) {
    EXPECT_EQ(add(op_), posted::pending);
    EXPECT_EQ(port_.post_compare_swap(link_.peer, key_, 24, 6, 7, nullptr, other_),
              posted::pending);
    ASSERT_EQ(link_.out.size(), 2u);
    const auto &first = link_.out[0], &second = link_.out[1];
    EXPECT_EQ(first.header.kind, frame_kind::fetch_add);
    EXPECT_EQ(first.payload.size(), rma_fetch_add_bytes);
    const std::byte* const asks = first.payload.data();
    EXPECT_EQ(remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(asks, 40)),
              key_);
    EXPECT_EQ(load_le<std::uint64_t>(asks + 40), 16u);
    EXPECT_EQ(load_le<std::uint64_t>(asks + 48), 5u);
    EXPECT_EQ(second.header.kind, frame_kind::compare_swap);
    EXPECT_EQ(second.payload.size(), rma_compare_swap_bytes);
    EXPECT_EQ(load_le<std::uint64_t>(second.payload.data() + 40), 24u);
    EXPECT_EQ(load_le<std::uint64_t>(second.payload.data() + 48), 6u);
    EXPECT_EQ(load_le<std::uint64_t>(second.payload.data() + 56), 7u);

    EXPECT_EQ(fetched(first.header.tag, 42), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(op_.bytes, 8u);
    EXPECT_EQ(old_, 42u);
    EXPECT_EQ(fetched(second.header.tag, 43), delivery::taken);
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(atomics_test, refusal_ends_it_and_leaves_the_old_value_alone) {
    (void)add(op_);
    std::vector<std::byte> payload(rma_status_bytes);
    write_status(payload.data(), {errc::invalid, 22});
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::rma_done, link_.out[0].header.tag, payload),
              delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::invalid));
    EXPECT_EQ(old_, 1u);
}

TEST_F(atomics_test, answers_that_were_not_asked_for_are_dropped) {
    (void)add(op_);
    const std::uint64_t tag = link_.out[0].header.tag;
    scripted_link& stranger = port_.peer();
    EXPECT_EQ(port_.deliver_bytes(stranger, frame_kind::fetched, tag, words({5})), delivery::taken);
    EXPECT_EQ(fetched(tag + 1, 5), delivery::taken);
    EXPECT_EQ(fetched(0, 5), delivery::taken);
    EXPECT_EQ(op_.runs, 0);
    EXPECT_EQ(fetched(tag, 6), delivery::taken);
    EXPECT_EQ(fetched(tag, 7), delivery::taken);
    EXPECT_EQ(op_.runs, 1);
    EXPECT_EQ(old_, 6u);
}

TEST_F(atomics_test, answers_of_another_kind_are_malformed) {
    (void)add(op_);
    const std::uint64_t tag = link_.out[0].header.tag;
    std::vector<std::byte> ok(rma_status_bytes);
    write_status(ok.data(), {});
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::rma_done, tag, ok), delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::get_data, tag, words({16, 1})),
              delivery::malformed);

    std::uint64_t local = 0;
    const mutable_bytes into = std::as_writable_bytes(std::span(&local, 1));
    const const_bytes from = into;
    for (bool puts : {true, false}) {
        recorded op;
        if (puts)
            (void)port_.post_put(link_.peer, {&from, 1}, key_, 0, op);
        else
            (void)port_.post_get(link_.peer, {&into, 1}, key_, 0, op);
        EXPECT_EQ(fetched(link_.out.back().header.tag, 1), delivery::malformed);
        port_.cancel(op);
        if (op.runs == 0)
            (void)port_.deliver_bytes(link_, frame_kind::rma_done, link_.out.back().header.tag, ok);
        EXPECT_EQ(op.runs, 1);
    }
}

TEST_F(atomics_test, canceled_one_ends_at_once_and_its_answer_changes_nothing) {
    (void)add(op_);
    port_.cancel(op_);
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    EXPECT_EQ(fetched(link_.out[0].header.tag, 42), delivery::taken);
    EXPECT_EQ(old_, 1u);
}

TEST_F(atomics_test, full_link_refuses_the_first_and_the_window_holds_back_the_rest) {
    link_.answer = posted::full;
    EXPECT_EQ(add(op_), posted::full);
    link_.answer = posted::done;
    std::vector<std::unique_ptr<recorded>> ops;
    for (std::size_t i = 0; i < limits::rma_window + 3; ++i) {
        ops.push_back(std::make_unique<recorded>());
        EXPECT_EQ(add(*ops.back()), posted::pending);
    }
    EXPECT_EQ(link_.out.size(), limits::rma_window);
    for (std::size_t i = 0; i < ops.size(); ++i)
        (void)fetched(link_.out[i].header.tag, i);
    for (const auto& each : ops)
        EXPECT_TRUE(each->ended_with(errc::ok));
}

TEST_F(atomics_test, lost_peer_ends_them) {
    (void)add(op_);
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
    EXPECT_EQ(old_, 1u);
}

// ---- target

TEST_F(atomics_test, number_is_changed_and_what_it_was_answered) {
    numbers_[2] = 40;
    EXPECT_EQ(ask(frame_kind::fetch_add, region_.key(), 16, {2}), delivery::taken);
    EXPECT_EQ(numbers_[2], 42u);
    ASSERT_EQ(link_.out.size(), 1u);
    EXPECT_EQ(link_.out[0].header.kind, frame_kind::fetched);
    EXPECT_EQ(link_.out[0].header.tag, 99u);
    EXPECT_EQ(link_.out[0].payload, words({40}));
    EXPECT_EQ(ask(frame_kind::compare_swap, region_.key(), 16, {41, 1}), delivery::taken);
    EXPECT_EQ(numbers_[2], 42u);
    EXPECT_EQ(link_.out.back().payload, words({42}));
    EXPECT_EQ(ask(frame_kind::compare_swap, region_.key(), 16, {42, 1}), delivery::taken);
    EXPECT_EQ(numbers_[2], 1u);
}

TEST_F(atomics_test, answer_that_finds_the_link_full_waits_and_says_what_the_number_was_then) {
    link_.answer = posted::full;
    EXPECT_EQ(ask(frame_kind::fetch_add, region_.key(), 0, {2}), delivery::taken);
    EXPECT_EQ(ask(frame_kind::fetch_add, region_.key(), 0, {2}), delivery::taken);
    EXPECT_EQ(numbers_[0], 4u);
    region_ = region();
    link_.answer = posted::done;
    port_.writable(link_);
    ASSERT_EQ(link_.out.size(), 2u);
    EXPECT_EQ(link_.out[0].payload, words({0}));
    EXPECT_EQ(link_.out[1].payload, words({2}));
}

TEST_F(atomics_test, requests_of_a_wrong_length_are_malformed_and_change_nothing) {
    const remote_key key = region_.key();
    EXPECT_EQ(ask(frame_kind::fetch_add, key, 0, {}), delivery::malformed);
    EXPECT_EQ(ask(frame_kind::fetch_add, key, 0, {1, 2}), delivery::malformed);
    EXPECT_EQ(ask(frame_kind::compare_swap, key, 0, {0}), delivery::malformed);
    EXPECT_EQ(ask(frame_kind::compare_swap, key, 0, {0, 1, 2}), delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::fetched, 1, words({})), delivery::malformed);
    EXPECT_EQ(port_.deliver_bytes(link_, frame_kind::fetched, 1, words({1, 2})),
              delivery::malformed);
    const auto large = header_of(frame_kind::fetch_add, 1, 1'000'000);
    EXPECT_EQ(port_.begin_placement(link_, large, std::vector<std::byte>(64)), nullptr);
    EXPECT_EQ(numbers_[0], 0u);
}

}  // namespace
}  // namespace amalgam::detail
