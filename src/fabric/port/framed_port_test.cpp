#include "fabric/port/framed_port.hpp"

#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

#include "fabric/port/port_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

class framed_port_test : public testing::Test {
protected:
    delivery deliver(frame_kind kind, std::uint64_t tag, std::string_view text) {
        return port_.deliver(link_, header_of(kind, tag, text.size()), bytes_of(text));
    }
    posted receive(std::uint64_t tag, mutable_bytes into, completion& op) {
        return port_.post_receive(link_.peer, tag, into, op);
    }
    std::string text_of(const std::vector<std::byte>& bytes, std::size_t size) {
        return std::string(reinterpret_cast<const char*>(bytes.data()), size);
    }

    recorded op_, other_;
    recorded_messages sink_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(100000);
    scripted_port port_{{.max_queued_bytes = 1000}};
    scripted_link& link_ = port_.peer();
    peer_id peer_ = link_.peer;
};

TEST_F(framed_port_test, a_send_that_is_done_leaves_no_trace) {
    EXPECT_EQ(send(port_, peer_, 7, "hello", op_), posted::done);
    ASSERT_EQ(link_.out.size(), 1u);
    EXPECT_EQ(link_.out[0].header.tag, 7u);
    EXPECT_EQ(link_.out[0].header.bytes, 5u);
    EXPECT_EQ(port_.open_operations(), 0u);
    port_.cancel(op_);
    port_.settle_down();
    EXPECT_EQ(op_.runs, 0);
}

TEST_F(framed_port_test, a_lent_send_completes_when_the_link_says_so) {
    link_.answer = posted::pending;
    EXPECT_EQ(send(port_, peer_, 7, "hello", op_), posted::pending);
    EXPECT_EQ(port_.open_operations(), 1u);
    port_.sent(op_, {});
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(op_.bytes, 5u);
    EXPECT_EQ(port_.open_operations(), 0u);
}

TEST_F(framed_port_test, a_send_is_canceled_only_if_the_link_has_not_begun_it) {
    link_.answer = posted::pending;
    (void)send(port_, peer_, 1, "a", op_);
    (void)send(port_, peer_, 2, "b", other_);
    port_.cancel(op_);
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    link_.forgets = false;
    port_.cancel(other_);
    EXPECT_EQ(other_.runs, 0);
    port_.sent(other_, {});
    EXPECT_TRUE(other_.ended_with(errc::ok));
}

TEST_F(framed_port_test, full_takes_nothing) {
    link_.answer = posted::full;
    EXPECT_EQ(send(port_, peer_, 7, "hello", op_), posted::full);
    EXPECT_EQ(port_.open_operations(), 0u);
    port_.settle_down();
    EXPECT_EQ(op_.runs, 0);
}

TEST_F(framed_port_test, a_message_past_the_limit_completes_with_too_large) {
    const std::vector<std::byte> huge(port_.can().max_message_bytes + 1);
    const const_bytes piece(huge);
    EXPECT_EQ(port_.post_send(peer_, 1, {&piece, 1}, op_), posted::pending);
    EXPECT_EQ(op_.runs, 0);
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::too_large));
    EXPECT_TRUE(link_.out.empty());
}

TEST_F(framed_port_test, an_unknown_peer_completes_with_disconnected) {
    const peer_id nobody{(std::uint64_t{77} << 32) | 5};
    EXPECT_EQ(send(port_, nobody, 1, "x", op_), posted::pending);
    EXPECT_EQ(port_.post_receive(nobody, 1, memory_, other_), posted::pending);
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
    EXPECT_TRUE(other_.ended_with(errc::disconnected));
}

TEST_F(framed_port_test, messages_without_a_sink_wait_in_order) {
    EXPECT_EQ(deliver(frame_kind::unexpected, 1, "one"), delivery::taken);
    EXPECT_EQ(deliver(frame_kind::unexpected, 2, ""), delivery::taken);
    EXPECT_EQ(port_.prepare_to_sleep(), true);
    port_.set_sink(&sink_);
    EXPECT_EQ(port_.prepare_to_sleep(), false);
    EXPECT_EQ(port_.progress(1), 1u);
    EXPECT_EQ(deliver(frame_kind::unexpected, 3, "three"), delivery::taken);
    port_.settle_down();
    const std::vector<recorded_messages::one> expected{
        {peer_, 1, "one"}, {peer_, 2, ""}, {peer_, 3, "three"}};
    EXPECT_EQ(sink_.all, expected);
}

TEST_F(framed_port_test, a_loss_without_a_sink_is_told_after_the_messages) {
    EXPECT_EQ(deliver(frame_kind::unexpected, 1, "one"), delivery::taken);
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    sink_.on_each = [&](message& got) { (void)send(port_, got.from(), 7, "late", op_); };
    op_.then = [&] { EXPECT_TRUE(sink_.down.empty()); };
    port_.set_sink(&sink_);
    EXPECT_FALSE(port_.prepare_to_sleep());
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
    EXPECT_EQ(sink_.all.size(), 1u);
    ASSERT_EQ(sink_.down.size(), 1u);
    EXPECT_EQ(sink_.down[0].first, peer_);
    EXPECT_EQ(port_.peer_address(peer_), "");
}

TEST_F(framed_port_test, a_sink_that_leaves_is_told_later_of_whom_it_may_know) {
    port_.set_sink(&sink_);
    port_.set_sink(nullptr);
    const peer_id looked_up = port_.lookup("scripted://there").value();
    scripted_link& stranger = port_.peer();
    const peer_id unknown = stranger.peer;
    for (const auto& link : port_.links)
        port_.link_down(*link, {errc::disconnected});
    port_.settle_down();
    EXPECT_EQ(port_.released.size(), 3u);
    EXPECT_EQ(port_.peer_address(unknown), "");  // No record is kept for it.
    EXPECT_TRUE(port_.prepare_to_sleep());
    port_.set_sink(&sink_);
    port_.settle_down();
    ASSERT_EQ(sink_.down.size(), 2u);
    EXPECT_EQ(sink_.down[0].first, peer_);
    EXPECT_EQ(sink_.down[1].first, looked_up);
}

TEST_F(framed_port_test, a_sink_that_leaves_is_told_later_of_who_came_before) {
    port_.set_sink(&sink_);
    scripted_link& stranger = port_.peer();
    const peer_id came = stranger.peer;
    port_.set_sink(nullptr);
    port_.link_down(stranger, {errc::disconnected});
    port_.settle_down();
    port_.set_sink(&sink_);
    port_.settle_down();
    ASSERT_EQ(sink_.down.size(), 1u);
    EXPECT_EQ(sink_.down[0].first, came);
}

TEST_F(framed_port_test, losses_that_nobody_is_told_are_bounded_as_messages_are) {
    constexpr std::size_t bound = (1000 + sizeof(peer_record) - 1) / sizeof(peer_record);
    for (std::size_t rounds = 1; rounds <= 2; ++rounds) {  // Reported ones free their room.
        port_.set_sink(nullptr);
        for (int i = 0; i < 100; ++i) {
            (void)port_.lookup("scripted://nobody").value();
            port_.link_down(*port_.links.back(), {errc::unreachable});
            port_.settle_down();
        }
        port_.set_sink(&sink_);
        port_.settle_down();
        EXPECT_EQ(sink_.down.size(), rounds * bound);
    }
}

TEST_F(framed_port_test, a_loss_that_waits_for_a_sink_ends_with_the_port) {
    {
        scripted_port port;
        (void)port.lookup("scripted://there").value();
        port.link_down(*port.links.back(), {errc::unreachable});
        port.settle_down();
        port.set_sink(&sink_);
    }
    EXPECT_TRUE(sink_.down.empty());
}

TEST_F(framed_port_test, a_link_pauses_when_too_much_waits_and_resumes_when_half_is_gone) {
    const std::string text(300, 'x');
    EXPECT_EQ(deliver(frame_kind::expected, 1, text), delivery::taken);
    EXPECT_EQ(deliver(frame_kind::expected, 2, text), delivery::taken);
    EXPECT_EQ(deliver(frame_kind::expected, 3, text), delivery::pause);
    EXPECT_EQ(receive(1, memory_, op_), posted::pending);
    EXPECT_EQ(link_.resumes, 0);
    EXPECT_EQ(receive(2, memory_, other_), posted::pending);
    EXPECT_EQ(link_.resumes, 1);
    port_.settle_down();
    EXPECT_EQ(op_.bytes, 300u);
}

TEST_F(framed_port_test, empty_messages_pause_a_link_too) {
    delivery last = delivery::taken;
    for (int i = 0; i < 1000 && last == delivery::taken; ++i)
        last = deliver(frame_kind::unexpected, 1, "");
    EXPECT_EQ(last, delivery::pause);
    port_.set_sink(&sink_);
    port_.settle_down();
    EXPECT_EQ(link_.resumes, 1);
}

/// A port with a bound for all peers together, and three peers.
class bounded_port : public testing::Test {
protected:
    static constexpr std::size_t message = 10'000;

    delivery deliver(scripted_link& from, std::uint64_t tag, std::size_t bytes = message) {
        return port_.deliver_bytes(from, frame_kind::expected, tag, std::vector<std::byte>(bytes));
    }
    void receive(scripted_link& from, std::uint64_t tag) {
        recorded op;
        (void)port_.post_receive(from.peer, tag, memory_, op);
        port_.settle_down();
        EXPECT_TRUE(op.ended_with(errc::ok));
    }

    std::vector<std::byte> memory_ =
        std::vector<std::byte>(scripted_port::its_capabilities().max_message_bytes);
    recorded_messages sink_;
    scripted_port port_{{.max_queued_bytes_total = 25'000}};
    scripted_link& first_ = port_.peer();
    scripted_link& second_ = port_.peer();
    scripted_link& good_ = port_.peer();
};

TEST_F(bounded_port, what_waits_of_all_peers_together_pauses_those_it_waits_of) {
    EXPECT_EQ(deliver(first_, 1), delivery::taken);
    EXPECT_EQ(deliver(second_, 1), delivery::taken);
    EXPECT_EQ(deliver(first_, 2), delivery::pause);
    EXPECT_EQ(deliver(second_, 2), delivery::pause);
    EXPECT_GT(port_.usage().queued_bytes, 40'000u);
    receive(first_, 1);
    receive(second_, 1);
    EXPECT_EQ(first_.resumes + second_.resumes, 0);
    receive(second_, 2);
    EXPECT_EQ(first_.resumes, 1) << "half of the bound is free again";
    EXPECT_EQ(second_.resumes, 1);
    receive(first_, 2);
    EXPECT_EQ(port_.usage().queued_bytes, 0u);
}

TEST_F(bounded_port, a_peer_of_whom_nothing_waits_is_served_at_the_bound) {
    for (std::uint64_t tag = 0; tag < 3; ++tag)
        (void)deliver(first_, tag);
    for (std::uint64_t tag = 0; tag < 3; ++tag) {
        recorded op;
        (void)port_.post_receive(good_.peer, tag, memory_, op);
        EXPECT_EQ(deliver(good_, tag), delivery::taken);
        EXPECT_TRUE(op.ended_with(errc::ok));
        EXPECT_EQ(deliver(good_, 100 + tag), delivery::pause);
        receive(good_, 100 + tag);
        EXPECT_EQ(good_.resumes, static_cast<int>(tag) + 1);
    }
}

TEST_F(bounded_port, far_past_the_bound_the_peer_that_holds_most_is_ended) {
    port_.set_sink(&sink_);
    EXPECT_EQ(deliver(first_, 1, 900'000), delivery::pause);
    EXPECT_EQ(deliver(good_, 1), delivery::pause);
    EXPECT_EQ(deliver(second_, 1, 200'000), delivery::pause);
    EXPECT_EQ(first_.shuts, 1);
    port_.settle_down();
    ASSERT_EQ(sink_.down.size(), 1u);
    EXPECT_EQ(sink_.down.front().second.code, errc::overloaded);
    EXPECT_EQ(port_.usage().evicted, 1u);
    EXPECT_LT(port_.usage().queued_bytes, 211'000u);
    receive(good_, 1);
}

TEST_F(bounded_port, a_bound_of_everything_ends_nobody_and_one_of_nothing_pauses_at_once) {
    scripted_port unbounded{{.max_queued_bytes = SIZE_MAX, .max_queued_bytes_total = SIZE_MAX}};
    scripted_link& from = unbounded.peer();
    for (std::uint64_t tag = 0; tag < 3; ++tag)
        EXPECT_EQ(unbounded.deliver_bytes(from, frame_kind::expected, tag,
                                          std::vector<std::byte>(memory_.size() / 2)),
                  delivery::taken);
    EXPECT_EQ(unbounded.usage().evicted, 0u);

    scripted_port narrow{{.max_queued_bytes = 0, .max_queued_bytes_total = 0}};
    scripted_link& waits = narrow.peer();
    EXPECT_EQ(narrow.deliver_bytes(waits, frame_kind::expected, 1, std::vector<std::byte>(9)),
              delivery::pause);
    recorded op;
    (void)narrow.post_receive(waits.peer, 1, memory_, op);
    narrow.settle_down();
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(waits.resumes, 1);
}

TEST_F(bounded_port, memory_goes_back_when_nothing_waits_any_more) {
    for (std::uint64_t tag = 0; tag < 20; ++tag)
        (void)deliver(first_, tag, 53'000);
    EXPECT_GT(port_.usage().queued_bytes, 1u << 20);
    port_.link_down(first_, {errc::disconnected});
    EXPECT_EQ(port_.usage().queued_bytes, 0u);
    EXPECT_EQ(port_.usage().pooled_bytes, 0u);
}

TEST_F(framed_port_test, an_expected_message_that_does_not_fit_is_too_large_and_gone) {
    (void)receive(1, mutable_bytes(memory_).first(3), op_);
    EXPECT_EQ(deliver(frame_kind::expected, 1, "four"), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::too_large));
    EXPECT_EQ(op_.bytes, 0u);
    EXPECT_EQ(deliver(frame_kind::expected, 2, "four"), delivery::taken);
    (void)receive(2, mutable_bytes(memory_).first(3), other_);
    port_.settle_down();
    EXPECT_TRUE(other_.ended_with(errc::too_large));
    EXPECT_EQ(memory_[0], std::byte{0});
}

TEST_F(framed_port_test, the_loss_of_a_link_completes_everything_once_and_then_tells_the_sink) {
    port_.set_sink(&sink_);
    recorded put, get, receive_op;
    link_.answer = posted::pending;
    remote_key key;
    key.bytes = 1000000;
    key.rights = access::read_write;
    const const_bytes piece(memory_);
    const mutable_bytes into(memory_);
    EXPECT_EQ(send(port_, peer_, 1, "x", op_), posted::pending);
    EXPECT_EQ(receive(2, memory_, receive_op), posted::pending);
    EXPECT_EQ(port_.post_put(peer_, {&piece, 1}, key, 0, put), posted::pending);
    EXPECT_EQ(port_.post_get(peer_, {&into, 1}, key, 0, get), posted::pending);
    std::size_t done_when_told = 0;
    EXPECT_EQ(port_.open_operations(), 4u);

    port_.link_down(link_, {errc::disconnected, 104});
    EXPECT_EQ(op_.runs + put.runs + get.runs + receive_op.runs, 0);
    EXPECT_TRUE(port_.released.empty());
    EXPECT_EQ(port_.prepare_to_sleep(), false);
    // Later posts fail as well, and not before the earlier ones.
    EXPECT_EQ(send(port_, peer_, 1, "y", other_), posted::pending);
    while (port_.progress(1) > 0)
        if (sink_.down.empty())
            done_when_told = std::size_t(op_.runs + put.runs + get.runs + receive_op.runs);
    EXPECT_EQ(done_when_told, 4u);
    for (recorded* one : {&op_, &put, &get, &receive_op, &other_}) {
        EXPECT_TRUE(one->ended_with(errc::disconnected));
        EXPECT_EQ(one->what.native, 104);
    }
    ASSERT_EQ(sink_.down.size(), 1u);
    EXPECT_EQ(sink_.down[0].first, peer_);
    EXPECT_EQ(port_.released, std::vector<frame_link*>{&link_});
    EXPECT_EQ(port_.open_operations(), 0u);
    EXPECT_EQ(port_.peer_address(peer_), "");
}

TEST_F(framed_port_test, a_peers_end_is_told_after_its_messages_that_found_no_sink) {
    (void)deliver(frame_kind::unexpected, 1, "last words");
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    EXPECT_FALSE(port_.released.empty());
    port_.set_sink(&sink_);
    EXPECT_EQ(port_.progress(1), 1u);
    EXPECT_EQ(sink_.all.size(), 1u);
    EXPECT_TRUE(sink_.down.empty());
    port_.settle_down();
    EXPECT_EQ(sink_.down.size(), 1u);
}

TEST_F(framed_port_test, close_ends_with_closed_and_drops_what_waited) {
    (void)deliver(frame_kind::unexpected, 1, "unheard");
    (void)receive(5, memory_, op_);
    port_.close(peer_);
    EXPECT_EQ(link_.shuts, 1);
    EXPECT_EQ(op_.runs, 0);
    port_.set_sink(&sink_);
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::closed));
    EXPECT_TRUE(sink_.all.empty());
    ASSERT_EQ(sink_.down.size(), 1u);
    EXPECT_EQ(sink_.down[0].second.code, errc::closed);
    port_.close(peer_);
    EXPECT_EQ(link_.shuts, 1);
}

TEST_F(framed_port_test, a_link_closed_by_a_callback_is_gone_for_its_transport) {
    port_.set_sink(&sink_);
    sink_.on_each = [&](message& arrived) { port_.close(arrived.from()); };
    EXPECT_EQ(deliver(frame_kind::unexpected, 1, "x"), delivery::gone);
    EXPECT_TRUE(port_.released.empty());  // Not while the transport is still reading from it.
    port_.settle_down();
    EXPECT_EQ(port_.released.size(), 1u);
}

TEST_F(framed_port_test, the_same_address_is_the_same_peer_until_it_is_down) {
    const peer_id first = port_.lookup("scripted://x").value();
    EXPECT_EQ(port_.lookup("scripted://x").value(), first);
    EXPECT_NE(port_.lookup("scripted://y").value(), first);
    EXPECT_EQ(port_.peer_address(first), "scripted://x");
    port_.close(first);
    EXPECT_NE(port_.lookup("scripted://x").value(), first);
}

TEST_F(framed_port_test, a_frame_of_no_known_kind_is_malformed) {
    EXPECT_EQ(deliver(frame_kind{0}, 1, "x"), delivery::malformed);
    EXPECT_EQ(deliver(frame_kind::first_of_transport, 1, "x"), delivery::malformed);
}

TEST_F(framed_port_test, a_large_message_lands_in_its_receive_and_cancel_takes_the_memory_back) {
    const std::vector<std::byte> text = pattern(50000);
    const frame_header header = header_of(frame_kind::expected, 9, text.size());
    (void)receive(9, memory_, op_);
    placement* to = port_.begin_placement(link_, header, const_bytes(text).first(64));
    ASSERT_NE(to, nullptr);
    ASSERT_EQ(to->into.size(), 1u);
    EXPECT_EQ(to->into[0].data(), memory_.data() + 64);
    EXPECT_EQ(to->into[0].size(), text.size() - 64);
    std::memcpy(to->into[0].data(), text.data() + 64, text.size() - 64);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(op_.bytes, text.size());
    EXPECT_EQ(std::memcmp(memory_.data(), text.data(), text.size()), 0);

    (void)receive(9, memory_, other_);
    to = port_.begin_placement(link_, header, const_bytes(text).first(64));
    port_.cancel(other_);
    EXPECT_TRUE(other_.ended_with(errc::canceled));
    EXPECT_TRUE(to->discard);
    EXPECT_TRUE(to->into.empty());
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_EQ(other_.runs, 1);
}

TEST_F(framed_port_test, a_receive_posted_while_its_message_is_being_read_gets_it) {
    const std::vector<std::byte> text = pattern(50000);
    const frame_header header = header_of(frame_kind::expected, 9, text.size());
    placement* to = port_.begin_placement(link_, header, const_bytes(text).first(64));
    ASSERT_NE(to, nullptr);
    (void)receive(9, memory_, op_);
    std::memcpy(to->into[0].data(), text.data() + 64, text.size() - 64);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_TRUE(op_.ended_with(errc::ok));
    EXPECT_EQ(std::memcmp(memory_.data(), text.data(), text.size()), 0);
}

TEST_F(framed_port_test, a_large_unexpected_message_is_handed_over_without_a_copy) {
    port_.set_sink(&sink_);
    buffer kept;
    const std::byte* shown = nullptr;
    sink_.on_each = [&](message& arrived) {
        shown = arrived.bytes().data();
        kept = arrived.take();
    };
    const std::vector<std::byte> text = pattern(50000);
    const frame_header header = header_of(frame_kind::unexpected, 9, text.size());
    placement* to = port_.begin_placement(link_, header, const_bytes(text).first(64));
    ASSERT_NE(to, nullptr);
    std::memcpy(to->into[0].data(), text.data() + 64, text.size() - 64);
    EXPECT_EQ(port_.end_placement(link_), delivery::taken);
    EXPECT_EQ(kept.data(), shown);
    EXPECT_EQ(std::memcmp(kept.data(), text.data(), text.size()), 0);
}

TEST_F(framed_port_test, a_short_message_is_kept_by_copying_it) {
    port_.set_sink(&sink_);
    buffer kept, empty;
    sink_.on_each = [&](message& arrived) {
        kept = arrived.take();
        EXPECT_NE(kept.data(), arrived.bytes().data());
    };
    (void)deliver(frame_kind::unexpected, 1, "hello");
    EXPECT_EQ(kept.size(), 5u);
    EXPECT_EQ(std::memcmp(kept.data(), "hello", 5), 0);
    sink_.on_each = [&](message& arrived) { empty = arrived.take(); };
    (void)deliver(frame_kind::unexpected, 1, "");
    EXPECT_EQ(empty.size(), 0u);
}

TEST_F(framed_port_test, a_message_longer_than_any_may_be_is_malformed) {
    const frame_header header = header_of(frame_kind::unexpected, 9, 0xffffffff);
    EXPECT_EQ(port_.begin_placement(link_, header, const_bytes(memory_).first(64)), nullptr);
    const frame_header small = header_of(frame_kind::rma_done, 9, 100000);
    EXPECT_EQ(port_.begin_placement(link_, small, const_bytes(memory_).first(64)), nullptr);
}

TEST_F(framed_port_test, the_loss_of_a_link_in_the_middle_of_a_landing_completes_its_receive) {
    const frame_header header = header_of(frame_kind::expected, 9, 50000);
    (void)receive(9, memory_, op_);
    ASSERT_NE(port_.begin_placement(link_, header, const_bytes(memory_).first(64)), nullptr);
    port_.link_down(link_, {errc::disconnected});
    port_.settle_down();
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
}

TEST_F(framed_port_test, progress_runs_no_more_completions_than_its_budget) {
    recorded many[10];
    for (recorded& one : many)
        (void)send(port_, peer_id{~std::uint64_t{0}}, 1, "x", one);
    EXPECT_EQ(port_.progress(3), 3u);
    EXPECT_EQ(many[2].runs + many[3].runs, 1);
    EXPECT_EQ(port_.progress(64), 7u);
}

TEST(framed_port_end, completes_what_is_pending_with_closed_and_takes_nothing_more) {
    recorded receive, failed, again;
    recorded_messages sink;
    posted how = posted::done;
    {
        scripted_port port;
        scripted_link& link = port.peer();
        const peer_id peer = link.peer;
        port.set_sink(&sink);
        std::byte into[8];
        (void)port.post_receive(peer, 1, into, receive);
        (void)send(port, peer_id{99}, 1, "x", failed);
        receive.then = [&, peer] { how = send(port, peer, 1, "x", again); };
    }
    EXPECT_TRUE(receive.ended_with(errc::closed));
    EXPECT_TRUE(failed.ended_with(errc::closed));
    EXPECT_EQ(how, posted::full);
    EXPECT_EQ(again.runs, 0);
    EXPECT_TRUE(sink.down.empty());
}

}  // namespace
}  // namespace amalgam::detail
