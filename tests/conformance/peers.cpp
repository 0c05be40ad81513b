#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

/// One request of every kind to a peer, for tests of how they end.
std::vector<request> one_of_each(peer_id peer, mutable_bytes bytes, const remote_key& key) {
    return {request::receive(peer, 1, bytes),    request::send(peer, 1, bytes.first(8)),
            request::send(peer, 1, bytes),       request::send_expected(peer, 2, bytes),
            request::put(peer, {bytes}, key, 0), request::get(peer, {bytes}, key, 0)};
}

TEST_P(transport_suite, same_address_gives_the_same_peer) {
    node& a = open();
    connection one = connect(a, open());
    connection two = connect(a, open());
    EXPECT_NE(one.b_at_a, two.b_at_a);
    EXPECT_EQ(a.end().lookup(one.b.end().address()).value(), one.b_at_a);
    EXPECT_EQ(a.end().lookup(two.b.end().address()).value(), two.b_at_a);
    EXPECT_EQ(a.end().peer_address(one.b_at_a), one.b.end().address());
    EXPECT_NE(one.b.end().peer_address(one.a_at_b), "");
    EXPECT_NE(one.b.end().incarnation(), two.b.end().incarnation());
}

TEST_P(transport_suite, port_says_what_it_is) {
    node& a = open();
    const capabilities& can = a.end().can();
    EXPECT_EQ(can.transport, transport_of(uri::parse(filled_in(GetParam()))));
    EXPECT_TRUE(can.listens);
    EXPECT_NE(a.end().address(), "");
    EXPECT_NE(a.end().explain(), "");
    EXPECT_GE(a.end().wait_handle(), can.driven ? -1 : 0);
    EXPECT_EQ(a.end().open_operations(), 0u);
}

TEST_P(transport_suite, address_in_use_is_in_use_with_a_sentence_that_names_it) {
    node& a = open();
    const std::string address = a.end().address();
    errc code = errc::ok;
    std::string sentence;
    try {
        auto refused = registry().open(address, {});
        ASSERT_FALSE(refused) << address << " is open twice";
        code = refused.code().code;
        sentence = refused.sentence();
    } catch (const error& why) {  // Thrown by foreign transports, or a virtual network.
        code = why.code().code;
        sentence = why.what();
    }
    EXPECT_EQ(code, errc::in_use) << sentence;
    EXPECT_NE(sentence.find(address.substr(address.find(':'))), std::string::npos)
        << sentence << " does not name " << address;
}

TEST_P(transport_suite, malformed_address_is_refused_with_a_sentence) {
    node& a = open();
    std::string own = GetParam().substr(0, GetParam().find("://"));
    const std::string wrong[] = {"",
                                 "://",
                                 "no scheme at all",
                                 own,
                                 own + ":",
                                 "no-such-transport://x",
                                 own + "://\n",
                                 own + "://a b",
                                 own + "://" + std::string(5000, 'x'),
                                 own + "://",
                                 std::string("\0\0", 2)};
    for (const std::string& address : wrong) {
        SCOPED_TRACE(address.substr(0, 40));
        auto refused = a.end().lookup(address);
        ASSERT_FALSE(refused);
        EXPECT_TRUE(refused.code() == errc::invalid || refused.code() == errc::unsupported)
            << amalgam::name(refused.code().code);
        EXPECT_GT(refused.sentence().size(), 20u) << refused.sentence();
    }
    EXPECT_EQ(move(), 0u);
    EXPECT_TRUE(a.lost.empty());
}

TEST_P(transport_suite, nobody_at_the_address_ends_everything_unreachable) {
    std::string address = address_of_nobody();
    node& a = open();
    mutable_bytes bytes = zeroed(300000);
    remote_key key{1, 1, 1, 300000, access::read_write, {}};
    for (int again = 0; again < 3; ++again) {
        peer_id nobody = a.end().lookup(address).value();
        std::vector<operation*> ops;
        for (request& ask : one_of_each(nobody, bytes, key))
            ops.push_back(&start(a, ask));
        finish(ops);
        for (operation* op : ops)
            EXPECT_EQ(op->code(), errc::unreachable) << name(op->what().kind);
        until("the word that nobody is there", [&] { return a.has_lost(nobody); });
        EXPECT_EQ(a.loss_of(nobody), errc::unreachable);
        EXPECT_NE(a.end().lookup(address).value(), nobody);
    }
}

TEST_P(transport_suite, unknown_peer_ends_everything_disconnected) {
    node& a = open();
    mutable_bytes bytes = zeroed(1000);
    remote_key key{1, 1, 1, 1000, access::read_write, {}};
    for (peer_id stranger : {peer_id{0}, peer_id{12345}, peer_id{~0ull}}) {
        EXPECT_EQ(a.end().peer_address(stranger), "");
        for (request& ask : one_of_each(stranger, bytes, key)) {
            operation& op = a.try_post(ask);
            ASSERT_EQ(op.how(), posted::pending);
            finish(op);
            EXPECT_EQ(op.code(), errc::disconnected) << name(ask.kind);
        }
        a.end().close(stranger);
    }
    move();
    EXPECT_TRUE(a.lost.empty());
}

TEST_P(transport_suite, caller_that_does_not_listen_gets_its_answers) {
    auto where = caller_uri();
    if (!where) GTEST_SKIP() << "every port of this transport listens";
    node& server = open();
    node& caller = open_at(*where);
    EXPECT_EQ(caller.end().address(), "");
    EXPECT_FALSE(caller.end().can().listens);
    connection over = connect(caller, server);
    EXPECT_NE(server.end().peer_address(over.a_at_b), "");
    start(server, request::send(over.a_at_b, 1, patterned(3000000, 1)));
    EXPECT_TRUE(is_pattern(next_arrival(caller).bytes, 1));
    mutable_bytes into = zeroed(100000);
    operation& receive = start(caller, request::receive(over.b_at_a, 1, into));
    start(server, request::send_expected(over.a_at_b, 1, patterned(100000, 2)));
    finish(receive);
    EXPECT_TRUE(is_pattern(into, 2));
    region target = caller.end().open_region(into, access::read_write).value();
    complete(server, request::put(over.a_at_b, {patterned(100000, 3)}, target.key(), 0));
    EXPECT_TRUE(is_pattern(into, 3));
}

TEST_P(transport_suite, both_may_look_each_other_up_at_once) {
    node& a = open();
    node& b = open();
    peer_id to_b = a.end().lookup(b.end().address()).value();
    peer_id to_a = b.end().lookup(a.end().address()).value();
    for (std::uint64_t i = 0; i < 50; ++i) {
        start(a, request::send(to_b, i, patterned(100, i)));
        start(b, request::send(to_a, i, patterned(100, i)));
    }
    for (std::uint64_t i = 0; i < 50; ++i) {
        EXPECT_EQ(next_arrival(a).tag, i);
        EXPECT_EQ(next_arrival(b).tag, i);
    }
    EXPECT_TRUE(a.lost.empty());
    EXPECT_TRUE(b.lost.empty());
}

TEST_P(transport_suite, close_ends_everything_of_that_peer_and_only_that) {
    node& a = open();
    connection closing = connect(a, open());
    connection staying = connect(a, open());
    mutable_bytes bytes = zeroed(3000000);
    region target = closing.b.end().open_region(zeroed(3000000), access::read_write).value();
    operation& bystander = start(a, request::receive(staying.b_at_a, 1, zeroed(8)));
    operation& far = start(closing.b, request::receive(closing.a_at_b, 1, zeroed(8)));
    std::vector<operation*> ops;
    for (request& ask : one_of_each(closing.b_at_a, bytes, target.key()))
        ops.push_back(&a.try_post(ask));
    a.close(closing.b_at_a);
    until("the word that it is closed", [&] { return a.has_lost(closing.b_at_a); });
    EXPECT_EQ(a.loss_of(closing.b_at_a), errc::closed);
    for (operation* op : ops) {
        EXPECT_FALSE(op->pending()) << name(op->what().kind);
        if (op->runs() == 1) {
            EXPECT_EQ(op->code(), errc::closed) << name(op->what().kind);
        }
    }
    until("the far side's word", [&] { return closing.b.has_lost(closing.a_at_b); });
    EXPECT_EQ(closing.b.loss_of(closing.a_at_b), errc::disconnected);
    EXPECT_EQ(far.code(), errc::disconnected);

    for (request& ask : one_of_each(closing.b_at_a, bytes, target.key()))
        EXPECT_EQ(complete(a, ask).code(), errc::disconnected) << name(ask.kind);
    a.end().close(closing.b_at_a);
    start(staying.b, request::send_expected(staying.a_at_b, 1, patterned(8, 1)));
    finish(bystander);
    EXPECT_EQ(bystander.code(), errc::ok);
    connection again = connect(a, closing.b);
    EXPECT_NE(again.b_at_a, closing.b_at_a);
    EXPECT_NE(again.a_at_b, closing.a_at_b);
    EXPECT_EQ(a.lost.size(), 1u);
    EXPECT_EQ(closing.b.lost.size(), 1u);
}

TEST_P(transport_suite, what_is_posted_to_a_lost_peer_ends_before_its_loss_is_told) {
    node& a = open();
    mutable_bytes bytes = zeroed(300000);
    for (bool closes : {true, false}) {
        connection over = connect(a, open());
        remote_key key;
        {
            region gone = over.b.end().open_region(zeroed(300000), access::read_write).value();
            key = gone.key();
        }
        operation& last = start(a, request::receive(over.b_at_a, 1, bytes));
        std::vector<operation*> ops;
        const auto post_all = [&] {
            for (request& ask : one_of_each(over.b_at_a, bytes, key))
                ops.push_back(&a.try_post(ask));
        };
        last.then = [&](operation&) { post_all(); };
        if (closes) {
            a.close(over.b_at_a);
            post_all();
            ops[0]->then = [&](operation&) { post_all(); };
        } else {
            over.b.shut();
        }
        // The node checks that all of them have completed when the loss is reported.
        until("the word of its loss", [&] { return a.has_lost(over.b_at_a); });
        ASSERT_GE(ops.size(), 6u);
        for (const operation* op : ops) {
            ASSERT_EQ(op->how(), posted::pending) << name(op->what().kind);
            EXPECT_EQ(op->code(), a.loss_of(over.b_at_a)) << name(op->what().kind);
        }
    }
}

TEST_P(transport_suite, loss_is_told_when_a_sink_comes) {
    for (bool looked_up : {true, false}) {
        connection over = connected_pair();
        node& deaf = looked_up ? over.a : over.b;
        const peer_id lost = looked_up ? over.b_at_a : over.a_at_b;
        connection other = connect(deaf, open());
        operation& noticed = start(deaf, request::receive(lost, 1, zeroed(8)));
        deaf.be_deaf();
        (looked_up ? over.b : over.a).shut();
        finish(noticed);
        for (int rounds = 0; rounds < 20; ++rounds)
            move();
        EXPECT_TRUE(deaf.lost.empty());
        EXPECT_EQ(complete(deaf, request::receive(lost, 1, zeroed(8))).code(), errc::disconnected);

        deaf.listen();
        until("the word of its loss", [&] { return deaf.has_lost(lost); });
        EXPECT_EQ(deaf.loss_of(lost), errc::disconnected);
        EXPECT_EQ(deaf.end().peer_address(lost), "");
        flush(other);
        EXPECT_EQ(deaf.lost.size(), 1u);
    }
}

TEST_P(transport_suite, close_of_a_peer_still_being_reached_ends_what_it_was_asked) {
    node& a = open();
    node& b = open();
    peer_id to_b = a.end().lookup(b.end().address()).value();
    operation& op = a.try_post(request::receive(to_b, 1, zeroed(8)));
    a.close(to_b);
    finish(op);
    EXPECT_EQ(op.code(), errc::closed);
    connect(a, b);
}

TEST_P(transport_suite, close_inside_a_completion_and_inside_the_sink) {
    node& a = open();
    connection one = connect(a, open());
    connection two = connect(a, open());
    operation& receive = start(a, request::receive(one.b_at_a, 1, zeroed(8)));
    operation& behind = start(a, request::receive(one.b_at_a, 1, zeroed(8)));
    receive.then = [&](operation&) { a.close(one.b_at_a); };
    a.on_arrival = [&](message& got) { a.close(got.from()); };
    for (int i = 0; i < 2; ++i)
        start(one.b, request::send_expected(one.a_at_b, 1, patterned(8, 1)));
    for (int i = 0; i < 3; ++i)  // A second one must not reach the sink.
        start(two.b, request::send(two.a_at_b, 1, patterned(8, 1)));
    until("both closed", [&] { return a.has_lost(one.b_at_a) && a.has_lost(two.b_at_a); });
    EXPECT_TRUE(behind.code() == errc::closed || behind.code() == errc::ok);
    until("both told", [&] { return one.b.has_lost(one.a_at_b) && two.b.has_lost(two.a_at_b); });
    a.on_arrival = nullptr;
    connect(a, one.b);
}

TEST_P(transport_suite, end_of_a_port_completes_its_own_and_its_peers_operations) {
    connection over = connected_pair();
    mutable_bytes bytes = zeroed(3000000);
    {
        region target = over.b.end().open_region(zeroed(3000000), access::read_write).value();
        for (request& ask : one_of_each(over.b_at_a, bytes, target.key()))
            over.a.try_post(ask);
        operation& theirs = start(over.b, request::receive(over.a_at_b, 1, zeroed(8)));
        EXPECT_TRUE(over.a.open_operations() > 0);
        over.a.shut();  // Checks that each of its own operations ends `closed`, once.
        finish(theirs);
        EXPECT_EQ(theirs.code(), errc::disconnected);
    }
    until("the word of its loss", [&] { return over.b.has_lost(over.a_at_b); });
    EXPECT_EQ(over.b.loss_of(over.a_at_b), errc::disconnected);
    connect(open(), over.b);
}

TEST_P(transport_suite, what_a_peer_sent_before_its_end_arrives_though_it_left_ours_unread) {
    const_bytes bytes = patterned(100, 5);
    for (int round = 0; round < (is_brief() ? 2 : 10); ++round) {
        node& a = open();
        node& b = open();
        connection over = connect(a, b);
        std::vector<operation*> unread;
        for (std::uint64_t tag = 0; tag < 3; ++tag) {
            complete(b, request::send(over.a_at_b, tag, bytes));
            operation& op = a.try_post(request::send(over.b_at_a, tag, bytes));
            if (!op.refused()) unread.push_back(&op);
        }
        // In virtual time both belong to one thread. Some libraries send nothing, not even then,
        // unless the other end moves, too.
        std::future<void> end =
            std::async(a.driven() ? std::launch::deferred : std::launch::async, [&] { b.shut(); });
        for (std::chrono::milliseconds wait{50}; end.wait_for(wait) == std::future_status::timeout;
             wait = std::chrono::milliseconds(1))
            a.progress();
        end.get();
        for (std::uint64_t tag = 0; tag < 3; ++tag)
            ASSERT_EQ(next_arrival(a).tag, tag);
        until("the word of its loss", [&] { return a.has_lost(over.b_at_a); });
        finish(unread);
        a.shut();
    }
}

TEST_P(transport_suite, port_opened_again_at_the_same_address_is_somebody_else) {
    node& a = open();
    node& first = open();
    std::string address = first.end().address();
    connection before = connect(a, first);
    remote_key old_key;
    mutable_bytes memory = zeroed(100);
    {
        region target = first.end().open_region(memory, access::read_write).value();
        old_key = target.key();
    }
    first.shut();
    node& second = open_at(address);
    EXPECT_EQ(second.end().address(), address);
    EXPECT_NE(second.end().incarnation(), old_key.incarnation);
    region fresh = second.end().open_region(memory, access::read_write).value();
    until("the first one's loss", [&] { return a.has_lost(before.b_at_a); });

    connection after = connect(a, second);
    EXPECT_NE(after.b_at_a, before.b_at_a);
    const_bytes source = patterned(100, 1);
    EXPECT_EQ(complete(a, request::put(after.b_at_a, {source}, old_key, 0)).code(), errc::denied);
    remote_key mixed = fresh.key();
    mixed.incarnation = old_key.incarnation;
    EXPECT_EQ(complete(a, request::put(after.b_at_a, {source}, mixed, 0)).code(), errc::denied);
    EXPECT_TRUE(is_all(memory, std::byte{0}));
    EXPECT_EQ(complete(a, request::put(before.b_at_a, {source}, fresh.key(), 0)).code(),
              errc::disconnected);
    EXPECT_EQ(complete(a, request::put(after.b_at_a, {source}, fresh.key(), 0)).code(), errc::ok);
}

TEST_P(transport_suite, peer_ids_are_never_used_again) {
    node& a = open();
    node& b = open();
    std::vector<peer_id> seen_at_a, seen_at_b;
    int rounds = 100;
    for (int i = 0; i < rounds; ++i) {
        connection over = connect(a, b);
        seen_at_a.push_back(over.b_at_a);
        seen_at_b.push_back(over.a_at_b);
        a.close(over.b_at_a);
        until("the far side's word", [&] { return b.has_lost(over.a_at_b); });
    }
    for (auto* seen : {&seen_at_a, &seen_at_b}) {
        std::sort(seen->begin(), seen->end());
        EXPECT_EQ(std::adjacent_find(seen->begin(), seen->end()), seen->end());
    }
}

}  // namespace
}  // namespace amalgam::conformance
