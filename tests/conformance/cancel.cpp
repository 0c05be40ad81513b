#include <array>
#include <map>
#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

constexpr std::byte touched_not{0x5a};

/// One operation of each kind over a connection, and its counterpart.
struct cancellable {
    connection& over;
    std::size_t bytes;
    mutable_bytes far;   ///< The remote region, or the buffer of an expected message.
    mutable_bytes near;  ///< Buffer that a receive or get fills.
    const_bytes out;     ///< Bytes that a send or put sends.
    region target;

    request ask(op_kind kind, std::uint64_t tag) const {
        switch (kind) {
            case op_kind::send:
                return request::send(over.b_at_a, tag, out);
            case op_kind::send_expected:
                return request::send_expected(over.b_at_a, tag, out);
            case op_kind::receive:
                return request::receive(over.b_at_a, tag, near);
            case op_kind::put:
                return request::put(over.b_at_a, {out}, target.key(), 0);
            case op_kind::get:
                return request::get(over.b_at_a, {near}, target.key(), 0);
            case op_kind::put_notify:
                return request::put_notify(over.b_at_a, {out}, target.key(), 0, tag);
            case op_kind::fetch_add:
                return request::fetch_add(over.b_at_a, target.key(), 0, 1, near.first(8));
            case op_kind::compare_swap:
                return request::compare_swap(over.b_at_a, target.key(), 0, 1, 2, near.first(8));
        }
        return {};
    }
};

bool canceled_or_ok(const operation& op) {
    return op.code() == errc::ok || op.code() == errc::canceled;
}

TEST_P(transport_suite, receive_canceled_before_anything_came_is_canceled_once) {
    connection over = connected_pair();
    operation& op = start(over.a, request::receive(over.b_at_a, 1, zeroed(100)));
    EXPECT_TRUE(op.pending());
    over.a.cancel(op);
    finish(op);
    EXPECT_EQ(op.code(), errc::canceled);
    EXPECT_EQ(over.a.end().open_operations(), 0u);
}

TEST_P(transport_suite, canceled_receive_leaves_the_message_for_the_next_one) {
    connection over = connected_pair();
    for (std::size_t bytes : {16u, 5000u, 500000u}) {
        std::array<mutable_bytes, 3> places{zeroed(bytes), zeroed(bytes), zeroed(bytes)};
        std::vector<operation*> receives;
        for (mutable_bytes place : places)
            receives.push_back(&start(over.a, request::receive(over.b_at_a, 1, place)));
        over.a.cancel(*receives[1]);
        finish(*receives[1]);
        EXPECT_EQ(receives[1]->code(), errc::canceled);
        for (std::uint64_t i : {1u, 2u})
            start(over.b, request::send_expected(over.a_at_b, 1, patterned(bytes, i)));
        finish(receives);
        EXPECT_TRUE(is_pattern(places[0], 1));
        EXPECT_TRUE(is_all(places[1], std::byte{0}));
        EXPECT_TRUE(is_pattern(places[2], 2));
    }
}

TEST_P(transport_suite, every_kind_canceled_at_any_moment_completes_once_and_lets_go) {
    connection over = connected_pair();
    std::size_t bytes = is_brief() ? 300000 : 1000000;
    const_bytes out = patterned(bytes, 1);
    const_bytes back = patterned(bytes, 2);
    for (op_kind kind : kinds_of(over.a.end())) {
        for (int after : {0, 1, 2, 3, 5, 8, 13, 40}) {
            SCOPED_TRACE(std::string(name(kind)) + " canceled after " + std::to_string(after));
            cancellable job{over, bytes, patterned(bytes, 2), zeroed(bytes), out, {}};
            job.target = over.b.end().open_region(job.far, access::read_write).value();
            operation* other = nullptr;
            if (kind == op_kind::receive)
                other = &start(over.b, request::send_expected(over.a_at_b, 1, back));
            operation& op = start(over.a, job.ask(kind, 1));
            for (int i = 0; i < after; ++i) {
                over.a.progress(1);
                over.b.progress(1);
            }
            if (op.pending()) over.a.cancel(op);
            finish(op);
            EXPECT_TRUE(canceled_or_ok(op)) << name(op.code());
            // The bytes are ours again: later writes by the port would show.
            if (op.code() == errc::ok && !op.what().into.empty()) {
                EXPECT_TRUE(is_pattern(op.what().into.front(), 2));
            }
            std::fill(job.near.begin(), job.near.end(), touched_not);

            if (kind == op_kind::send) {
                flush({over.a, over.b, over.b_at_a, over.a_at_b});
                EXPECT_EQ(over.b.arrived.size(), op.code() == errc::ok ? 1u : 0u);
                if (!over.b.arrived.empty()) {
                    EXPECT_TRUE(is_pattern(over.b.arrived[0].bytes, 1));
                }
                over.b.arrived.clear();
            }
            if (kind == op_kind::send_expected) {
                mutable_bytes into = zeroed(bytes);
                if (op.code() == errc::canceled)
                    start(over.a, request::send_expected(over.b_at_a, 1, patterned(bytes, 3)));
                operation& receive = complete(over.b, request::receive(over.a_at_b, 1, into));
                EXPECT_EQ(receive.code(), errc::ok);
                EXPECT_TRUE(is_pattern(into, op.code() == errc::ok ? 1 : 3));
            }
            if (other != nullptr) {
                // If canceled while it is arriving, the message is dropped with its receive; before
                // that, it goes to the next receive. In both cases the following message gets
                // through.
                start(over.b, request::send_expected(over.a_at_b, 1, patterned(8, 9)));
                mutable_bytes into = zeroed(bytes);
                operation* next = &complete(over.a, request::receive(over.b_at_a, 1, into));
                if (next->bytes() != 8) {
                    EXPECT_TRUE(is_pattern(into, 2));
                    next = &complete(over.a, request::receive(over.b_at_a, 1, into));
                }
                EXPECT_EQ(next->bytes(), 8u);
                finish(*other);
            }
            flush(over);
            flush({over.b, over.a, over.a_at_b, over.b_at_a});
            EXPECT_TRUE(is_all(job.near, touched_not));
            if ((kind == op_kind::put || kind == op_kind::put_notify) && op.code() == errc::ok) {
                EXPECT_TRUE(is_pattern(job.far, 1));
            }
            const bool told = kind == op_kind::put_notify && op.code() == errc::ok;
            EXPECT_EQ(over.b.notices.size(), told ? 1u : 0u);
            over.b.notices.clear();
            if (kind == op_kind::get) {
                EXPECT_TRUE(is_pattern(job.far, 2));
            }
        }
    }
}

TEST_P(transport_suite, cancel_of_a_completed_operation_does_nothing) {
    connection over = connected_pair();
    cancellable job{over, 100000, patterned(100000, 2), zeroed(100000), patterned(100000, 1), {}};
    job.target = over.b.end().open_region(job.far, access::read_write).value();
    for (op_kind kind : kinds_of(over.a.end())) {
        if (kind == op_kind::receive)
            start(over.b, request::send_expected(over.a_at_b, 1, patterned(100000, 2)));
        operation& op = complete(over.a, job.ask(kind, 1));
        EXPECT_EQ(op.code(), errc::ok);
        over.a.cancel(op);
        over.a.cancel(op);
        if (kind == op_kind::send_expected)
            complete(over.b, request::receive(over.a_at_b, 1, zeroed(100000)));
    }
    flush(over);
    EXPECT_EQ(over.a.end().open_operations(), 0u);
}

TEST_P(transport_suite, cancel_of_an_operation_never_posted_does_nothing) {
    connection over = connected_pair();
    operation never(over.a, request::receive(over.b_at_a, 1, zeroed(8)));
    over.a.cancel(never);
    flush(over);
    EXPECT_EQ(never.runs(), 0);
}

TEST_P(transport_suite, cancel_twice_completes_once) {
    connection over = connected_pair();
    operation& op = start(over.a, request::receive(over.b_at_a, 1, zeroed(8)));
    over.a.cancel(op);
    over.a.cancel(op);
    finish(op);
    EXPECT_EQ(op.code(), errc::canceled);
}

TEST_P(transport_suite, cancel_inside_a_completion_and_inside_the_sink) {
    connection over = connected_pair();
    operation& first = start(over.a, request::receive(over.b_at_a, 1, zeroed(8)));
    operation& second = start(over.a, request::receive(over.b_at_a, 2, zeroed(8)));
    operation& third = start(over.a, request::receive(over.b_at_a, 3, zeroed(8)));
    first.then = [&](operation&) { over.a.cancel(second); };
    over.a.on_arrival = [&](message&) { over.a.cancel(third); };
    start(over.b, request::send_expected(over.a_at_b, 1, patterned(8, 1)));
    start(over.b, request::send(over.a_at_b, 1, {}));
    finish({&first, &second, &third});
    EXPECT_EQ(first.code(), errc::ok);
    EXPECT_EQ(second.code(), errc::canceled);
    EXPECT_EQ(third.code(), errc::canceled);
}

TEST_P(transport_suite, sends_canceled_in_a_full_port_arrive_never_the_rest_once) {
    connection over = connected_pair();
    seeded_random dice(3);
    std::size_t bytes = is_brief() ? 50000 : 200000;
    const_bytes out = patterned(bytes, 1);
    for (op_kind kind : {op_kind::send, op_kind::send_expected}) {
        std::map<std::uint64_t, operation*> ops;
        for (std::uint64_t tag = 0; tag < 100; ++tag) {
            operation& op = over.a.try_post({kind, over.b_at_a, tag, {out}});
            if (op.refused()) break;
            ops[tag] = &op;
        }
        over.a.progress();
        for (auto& [tag, op] : ops)
            if (dice.chance(0.5) && op->pending()) over.a.cancel(*op);
        std::map<std::uint64_t, operation*> receives;
        std::vector<operation*> all;
        for (auto& [tag, op] : ops) {
            if (kind == op_kind::send_expected)
                receives[tag] = &start(over.b, request::receive(over.a_at_b, tag, zeroed(bytes)));
            all.push_back(op);
        }
        finish(all);
        flush(over);
        for (auto& [tag, op] : ops) {
            EXPECT_TRUE(canceled_or_ok(*op));
            if (kind == op_kind::send && op->code() == errc::ok) {
                EXPECT_EQ(next_arrival(over.b).tag, tag);
            }
            if (kind == op_kind::send_expected && op->code() == errc::ok) finish(*receives[tag]);
            if (kind == op_kind::send_expected && op->code() == errc::canceled) {
                EXPECT_FALSE(receives[tag]->over()) << "a canceled send arrived";
                over.b.cancel(*receives[tag]);
            }
        }
        EXPECT_TRUE(over.b.arrived.empty());
    }
}

TEST_P(transport_suite, thousand_receives_canceled_in_any_order_complete_once_each) {
    connection over = connected_pair();
    seeded_random dice(4);
    std::vector<operation*> ops;
    mutable_bytes into = zeroed(8);
    for (std::uint64_t i = 0; i < 1000; ++i)
        ops.push_back(&start(over.a, request::receive(over.b_at_a, i % 10, into)));
    EXPECT_EQ(over.a.end().open_operations(), 1000u);
    std::vector<operation*> order = ops;
    for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[dice.below(i)]);
    for (operation* op : order)
        over.a.cancel(*op);
    finish(ops);
    for (operation* op : ops)
        ASSERT_EQ(op->code(), errc::canceled);
    EXPECT_EQ(over.a.end().open_operations(), 0u);
}

}  // namespace
}  // namespace amalgam::conformance
