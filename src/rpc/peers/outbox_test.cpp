#include "rpc/peers/outbox.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

namespace amalgam::detail {
namespace {

/// A message that records how it ended, and when.
struct traced final : outgoing {
    traced(std::string what, std::vector<std::string>& into)
        : outgoing(&on_sent), text(std::move(what)), log(into) {
        pieces[0] = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
        piece_count = 1;
    }
    static void on_sent(completion& self, status what, std::size_t) noexcept {
        auto& me = static_cast<traced&>(self);
        me.where = at::nowhere;
        me.log.push_back(me.text + " " + std::string(name(what.code)));
    }
    std::string text;
    std::vector<std::string>& log;
};

struct collects final : message_sink {
    void on_message(message& arrived) noexcept override {
        const const_bytes bytes = arrived.bytes();
        got.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    std::vector<std::string> got;
};

/// An outbox over a port whose link is full after one message of 8 bytes; moves only when driven.
struct narrow {
    loop_network net{{.inline_bytes = 64, .link_bytes = 8}};
    engine owner{net.port("owner")};  // Only to provide an owner for peers.
    std::vector<std::unique_ptr<port>> ports;
    std::unique_ptr<port> far = net.port("far");
    collects sink;
    buffer_pool buffers;
    known_peers peers{owner.core()};
    outbox out{buffers, 4};
    peer_state* there = nullptr;
    std::vector<std::string> log;

    narrow() {
        ports.push_back(net.port("near"));
        far->set_sink(&sink);
        out.open(ports);
        there = &peers.meet(0, ports[0]->lookup("loop://far").value());
    }
    ~narrow() { out.close(); }
    void settle() {
        for (int i = 0; i < 20; ++i) {
            net.run_until_idle();
            out.flush(0);
        }
    }
};

TEST(outbox, what_a_full_port_refuses_goes_out_later_in_order) {
    narrow n;
    std::vector<std::unique_ptr<traced>> all;
    std::vector<std::string> sent;
    std::size_t waiting = 0;
    for (char c = 'a'; c <= 'f'; ++c) {
        sent.emplace_back(8, c);
        all.push_back(std::make_unique<traced>(sent.back(), n.log));
        waiting += n.out.send(*n.there, *all.back()) == outbox::result::pending ? 1 : 0;
    }
    EXPECT_GE(waiting, 4u);
    EXPECT_EQ(n.out.queued(), waiting);
    EXPECT_FALSE(n.out.idle());
    const std::uint64_t retries = n.out.retries(0);
    EXPECT_GE(retries, 1u);
    n.settle();
    EXPECT_GE(n.out.retries(0), retries + 1) << "a message at a time";
    EXPECT_EQ(n.sink.got, sent);
    EXPECT_EQ(n.log.size(), waiting);
    EXPECT_EQ(n.out.queued(), 0u);
    EXPECT_TRUE(n.out.idle());
}

TEST(outbox, a_withdrawn_message_is_not_sent_and_completes_as_canceled) {
    narrow n;
    traced first(std::string(8, '1'), n.log), second("second", n.log), third("third", n.log);
    (void)n.out.send(*n.there, first);
    ASSERT_EQ(n.out.send(*n.there, second), outbox::result::pending);
    ASSERT_EQ(n.out.send(*n.there, third), outbox::result::pending);
    n.out.withdraw(second);
    EXPECT_EQ(n.log.back(), "second canceled");
    n.settle();
    EXPECT_EQ(n.sink.got, (std::vector<std::string>{std::string(8, '1'), "third"}));
    EXPECT_EQ(n.log.back(), "third ok");
}

TEST(outbox, messages_to_a_lost_peer_complete_with_the_reason) {
    narrow n;
    traced first(std::string(8, '1'), n.log), second("second", n.log);
    (void)n.out.send(*n.there, first);
    ASSERT_EQ(n.out.send(*n.there, second), outbox::result::pending);
    n.out.drop(*n.there, {errc::disconnected});
    EXPECT_EQ(n.log.back(), "second disconnected");
    EXPECT_EQ(n.out.queued(), 0u);
}

TEST(outbox, closing_completes_what_is_queued_and_refuses_the_rest) {
    narrow n;
    traced first(std::string(8, '1'), n.log), second("second", n.log), third("third", n.log);
    (void)n.out.send(*n.there, first);
    ASSERT_EQ(n.out.send(*n.there, second), outbox::result::pending);
    n.out.close();
    EXPECT_EQ(n.log.back(), "second closed");
    EXPECT_EQ(n.out.send(*n.there, third), outbox::result::closed);
    EXPECT_FALSE(n.out.send_copy(*n.there, 1, {third.pieces[0]}));
}

TEST(outbox, copies_are_sent_whole_and_behind_what_waits) {
    narrow n;
    traced first(std::string(8, '1'), n.log);
    (void)n.out.send(*n.there, first);
    const std::string head = "head,", tail(500, 't');
    EXPECT_TRUE(n.out.send_copy(*n.there, 3, {as_bytes(head), const_bytes{}, as_bytes(tail)}));
    n.settle();
    EXPECT_EQ(n.sink.got, (std::vector<std::string>{std::string(8, '1'), head + tail}));
}

TEST(outbox, a_copy_is_its_own_whether_the_port_takes_it_at_once_or_not) {
    for (const bool heard : {false, true}) {
        for (const std::size_t bytes : {std::size_t{5}, std::size_t{64}, std::size_t{65}}) {
            narrow n;
            if (heard) n.out.heard_from(*n.there);
            std::vector<std::string> sent;
            for (char c = 'a'; c <= 'd'; ++c) {
                std::string text(bytes, c), behind(3, '.');
                sent.push_back(text + behind);
                EXPECT_TRUE(n.out.send_copy(*n.there, 3, {as_bytes(text), const_bytes{}},
                                            {.behind = as_bytes(behind)}));
                text.assign(bytes, '?');
                behind.assign(3, '?');
            }
            EXPECT_NE(n.out.queued(), 0u);
            n.settle();
            EXPECT_EQ(n.sink.got, sent);
            EXPECT_TRUE(n.out.idle());
        }
    }
}

TEST(outbox, a_copy_to_a_peer_that_just_went_counts_as_lost) {
    narrow n;
    n.out.heard_from(*n.there);
    n.far.reset();
    owned_counter lost;
    std::string text = "late";
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(n.out.send_copy(*n.there, 3, {as_bytes(text)}, {.counts_loss = &lost}));
    n.settle();
    n.ports[0]->close(n.there->name.id());
    n.settle();
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(n.out.send_copy(*n.there, 3, {as_bytes(text)}, {.counts_loss = &lost}));
    n.settle();
    EXPECT_GE(lost.value(), 3u);
    EXPECT_TRUE(n.out.idle());
}

TEST(outbox, what_must_go_now_goes_to_a_connected_peer_without_a_queue_or_not_at_all) {
    narrow n;
    const std::string first(8, '1'), second(8, '2'), third(8, '3'), large(65, 'l');
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(first)));  // Not heard from.
    n.out.heard_from(*n.there);
    EXPECT_TRUE(n.out.send_now(*n.there, 3, as_bytes(first)));
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(second)));  // The port is full.
    EXPECT_TRUE(n.out.send_copy(*n.there, 3, {as_bytes(second)}));
    EXPECT_EQ(n.out.queued(), 1u);
    n.net.run_until_idle();
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(third)));  // It would overtake the second.
    n.settle();
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(large)));  // The port might borrow it.
    EXPECT_TRUE(n.out.send_now(*n.there, 3, as_bytes(third)));
    n.settle();
    EXPECT_EQ(n.sink.got, (std::vector<std::string>{first, second, third}));
    n.ports[0]->close(n.there->name.id());
    owned_counter lost;
    EXPECT_TRUE(n.out.send_now(*n.there, 3, as_bytes(first), &lost));
    n.settle();
    EXPECT_EQ(lost.value(), 1u);
    n.out.close();
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(first)));
    EXPECT_TRUE(n.out.idle());
}

// A peer may be written to before it was heard, and answer while much of that waits.
TEST(outbox, nothing_goes_at_once_to_a_peer_first_heard_while_messages_to_it_wait) {
    narrow n;
    traced first(std::string(8, '1'), n.log), second(std::string(8, '2'), n.log);
    (void)n.out.send(*n.there, first);
    ASSERT_EQ(n.out.send(*n.there, second), outbox::result::pending);
    n.out.heard_from(*n.there);
    EXPECT_EQ(n.there->at_once_bytes, 0u);
    EXPECT_EQ(n.there->lane, nullptr);
    n.net.run_until_idle();  // There is room now, which is for the second.
    EXPECT_FALSE(n.out.send_now(*n.there, 3, as_bytes(std::string(8, '3'))));
    n.settle();
    EXPECT_NE(n.there->at_once_bytes, 0u);
    EXPECT_EQ(n.sink.got, (std::vector<std::string>{first.text, second.text}));
}

TEST(outbox, who_waits_for_room_goes_on_when_half_of_it_is_there) {
    narrow n;
    std::vector<std::unique_ptr<traced>> all;
    for (char c = 'a'; c <= 'f'; ++c) {
        all.push_back(std::make_unique<traced>(std::string(8, c), n.log));
        (void)n.out.send(*n.there, *all.back());
    }
    ASSERT_TRUE(n.out.must_wait(*n.there));
    admission me;
    ASSERT_FALSE(n.out.admit(*n.there, me));
    while (n.out.queued() > 2) {
        EXPECT_FALSE(me.who.park_until(clock::time_point{}));
        n.out.withdraw(*all[all.size() - 1]);
        all.pop_back();
    }
    me.who.park();  // Returns.
    EXPECT_TRUE(n.out.admit(*n.there, me));
    n.settle();
}

TEST(outbox, who_waits_for_room_goes_on_when_the_peer_is_lost_or_this_is_closed) {
    for (const bool closes : {false, true}) {
        narrow n;
        std::vector<std::unique_ptr<traced>> all;
        for (char c = 'a'; c <= 'f'; ++c) {
            all.push_back(std::make_unique<traced>(std::string(8, c), n.log));
            (void)n.out.send(*n.there, *all.back());
        }
        admission me, other;
        ASSERT_FALSE(n.out.admit(*n.there, me));
        ASSERT_FALSE(n.out.admit(*n.there, other));
        closes ? n.out.close() : n.out.drop(*n.there, {errc::disconnected});
        // Fails unless both have been unparked.
        EXPECT_TRUE(me.who.park_until(clock::time_point{}));
        EXPECT_TRUE(other.who.park_until(clock::time_point{}));
    }
}

TEST(self_link, delivers_copies_in_order_and_is_full_at_its_limit) {
    buffer_pool buffers;
    self_link link(buffers);
    collects sink;
    std::string text = "one";
    const_bytes piece = as_bytes(text);
    EXPECT_EQ(link.post(1, gather(&piece, 1)), posted::done);
    text = "two";
    EXPECT_EQ(link.post(2, gather(&piece, 1)), posted::done);
    text = "xxx";
    EXPECT_FALSE(link.empty());
    EXPECT_EQ(link.deliver(sink), 2u);
    EXPECT_EQ(sink.got, (std::vector<std::string>{"one", "two"}));
    EXPECT_TRUE(link.empty());
    EXPECT_EQ(link.deliver(sink), 0u);
    for (std::size_t i = 0; i < limits::max_self_waiting; ++i)
        ASSERT_EQ(link.post(i, gather(&piece, 1)), posted::done);
    EXPECT_EQ(link.post(0, gather(&piece, 1)), posted::full);
}

TEST(known_peers, a_forgotten_peer_is_not_found_and_its_slot_serves_another) {
    loop_network net;
    engine owner{net.port("owner")};
    known_peers peers(owner.core());
    peer_state& first = peers.meet(0, peer_id{10});
    const peer name = first.name;
    first.set_verified(6, true);
    first.set_verified(70, true);
    first.heard = true;
    EXPECT_TRUE(first.verified(6));
    EXPECT_TRUE(first.verified(70));
    EXPECT_FALSE(first.verified(5));
    EXPECT_FALSE(first.verified(69));
    EXPECT_EQ(&peers.meet(0, peer_id{10}), &first);
    EXPECT_NE(&peers.meet(1, peer_id{10}), &first);
    EXPECT_EQ(peers.find(name), &first);
    peers.forget(first);
    EXPECT_EQ(peers.find(name), nullptr);
    EXPECT_EQ(peers.find(0, peer_id{10}), nullptr);
    peer_state& next = peers.meet(0, peer_id{11});
    EXPECT_EQ(&next, &first);
    EXPECT_FALSE(next.verified(6));
    EXPECT_FALSE(next.verified(70));
    EXPECT_FALSE(next.heard);  // Its connection may not be up: a port may borrow what it is given.
    EXPECT_EQ(peers.find(name), nullptr);
}

// Who finds a peer among the recent ones takes it for heard.
TEST(known_peers, only_peers_that_were_heard_are_recent) {
    loop_network net;
    engine owner{net.port("owner")};
    known_peers peers(owner.core());
    peer_state& one = peers.meet(0, peer_id{10});
    ASSERT_EQ(peers.find(0, peer_id{10}), &one);
    EXPECT_EQ(peers.find_recent(0, peer_id{10}), nullptr);
    one.heard = true;
    ASSERT_EQ(peers.find(0, peer_id{10}), &one);
    EXPECT_EQ(peers.find_recent(0, peer_id{10}), &one);
}

// More than are remembered as recent, so that many take each other's place there.
TEST(known_peers, many_are_found_in_any_order_and_only_while_they_are_known) {
    loop_network net;
    engine owner{net.port("owner")};
    known_peers peers(owner.core());
    std::vector<peer_state*> all;
    const auto id_of = [](std::size_t which) { return peer_id{1 + which / 2}; };
    const auto port_of = [](std::size_t which) { return static_cast<std::uint16_t>(which % 2); };
    for (std::size_t i = 0; i < 400; ++i)
        all.push_back(&peers.meet(port_of(i), id_of(i)));
    for (std::size_t step : {1, 7, 128, 129}) {
        for (std::size_t i = 0, at = 0; i < all.size(); ++i, at = (at + step) % all.size()) {
            ASSERT_EQ(peers.find(port_of(at), id_of(at)), all[at]);
            ASSERT_EQ(peers.find(port_of(at), id_of(at)), all[at]);
        }
    }
    for (std::size_t i = 0; i < all.size(); i += 3) {
        ASSERT_EQ(peers.find(port_of(i), id_of(i)), all[i]);
        peers.forget(*std::exchange(all[i], nullptr));
    }
    for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(peers.find(port_of(i), id_of(i)), all[i]);
}

}  // namespace
}  // namespace amalgam::detail
