#include <functional>
#include <vector>

#include <poll.h>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

/// Sleeps on the handle until it is readable. False: not within patience().
bool sleep_on(node& at) {
    pollfd handle{at.end().wait_handle(), POLLIN, 0};
    return ::poll(&handle, 1, static_cast<int>(patience().count())) > 0;
}

/// The same for two nodes; returns which is readable, or none. Precondition: two nodes, as poll()
/// checks one after the other, and reports what it found for each.
struct readable {
    bool first = false;
    bool second = false;
};
readable sleep_on(node& one, node& two) {
    pollfd handles[] = {{one.end().wait_handle(), POLLIN, 0}, {two.end().wait_handle(), POLLIN, 0}};
    ::poll(handles, 2, static_cast<int>(patience().count()));
    return {handles[0].revents != 0, handles[1].revents != 0};
}

/// Runs progress() until idle and the handle is armed.
void fall_asleep(node& at) {
    do {
        while (at.progress() != 0) {
        }
    } while (!at.end().prepare_to_sleep());
}

/// Sleeps whenever idle, until `reached`; returns the number of wake-ups.
int sleep_until(node& at, const std::function<bool()>& reached) {
    int woken = 0;
    while (!reached()) {
        if (at.progress() != 0 || !at.end().prepare_to_sleep()) continue;
        if (!sleep_on(at)) {
            ADD_FAILURE() << "nothing woke the sleeper";
            return woken;
        }
        ++woken;
    }
    return woken;
}

/// Both make progress only when woken; `at`, already asleep, calls `awake` each time.
void wake_until(
    node& at, node& other, const std::function<bool()>& reached,
    const std::function<void()>& awake = [] {}) {
    fall_asleep(other);
    for (int naps = 0; !reached(); ++naps) {
        ASSERT_LT(naps, 1000000) << "woken again and again for nothing";
        readable woken = sleep_on(at, other);
        ASSERT_TRUE(woken.first || woken.second) << "slept through it";
        if (woken.second) fall_asleep(other);
        if (!woken.first) continue;
        do {
            while (at.progress() != 0) {
            }
            awake();
        } while (!reached() && !at.end().prepare_to_sleep());
    }
}

/// With `at` asleep, `other` does `what`: expects `at` to wake and `reached` to become true.
void expect_wake(const char* why, node& at, node& other, const std::function<void()>& what,
                 const std::function<bool()>& reached) {
    SCOPED_TRACE(why);
    fall_asleep(other);
    fall_asleep(at);
    what();
    wake_until(at, other, reached);
}

TEST_P(transport_suite, sleeping_port_is_woken_by_everything_that_concerns_it) {
    connection over = connected_pair();
    node& a = over.a;
    node& b = over.b;
    if (a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";

    expect_wake(
        "a message", b, a, [&] { start(a, request::send(over.b_at_a, 1, patterned(8, 1))); },
        [&] { return b.arrived.size() == 1; });
    expect_wake(
        "a large message", b, a,
        [&] { a.try_post(request::send(over.b_at_a, 1, patterned(1 << 20, 1))); },
        [&] { return b.arrived.size() == 2; });
    operation& receive = start(b, request::receive(over.a_at_b, 1, zeroed(8)));
    expect_wake(
        "an expected message", b, a,
        [&] { a.try_post(request::send_expected(over.b_at_a, 1, patterned(8, 1))); },
        [&] { return receive.over(); });

    region target = b.end().open_region(zeroed(1 << 20), access::read_write).value();
    std::vector<operation*> ops;
    expect_wake(
        "the target of a put and a get", b, a,
        [&] {
            ops.push_back(
                &a.try_post(request::put(over.b_at_a, {patterned(100, 1)}, target.key(), 0)));
            ops.push_back(&a.try_post(request::get(over.b_at_a, {zeroed(100)}, target.key(), 0)));
        },
        [&] { return ops[0]->over() && ops[1]->over(); });

    node& late = open();
    expect_wake(
        "a new peer's first message", b, late,
        [&] {
            peer_id to_b = late.end().lookup(b.end().address()).value();
            start(late, request::send(to_b, 3, patterned(8, 3)));
        },
        [&] { return b.arrived.back().tag == 3; });
    peer_id late_at_b = b.arrived.back().from;
    expect_wake(
        "the loss of a peer", b, a, [&] { late.shut(); }, [&] { return b.has_lost(late_at_b); });
}

TEST_P(transport_suite, initiator_asleep_is_woken_when_its_transfer_ends) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    region target = over.b.end().open_region(zeroed(1 << 20), access::read_write).value();
    for (std::size_t bytes : {8u, 1u << 20}) {
        for (op_kind kind : {op_kind::put, op_kind::get}) {
            operation& op = over.a.try_post(
                kind == op_kind::put
                    ? request::put(over.b_at_a, {patterned(bytes, 1)}, target.key(), 0)
                    : request::get(over.b_at_a, {zeroed(bytes)}, target.key(), 0));
            if (op.over()) continue;  // Completed at once by the kernel.
            fall_asleep(over.a);
            wake_until(over.a, over.b, [&] { return op.over(); });
        }
    }
}

TEST_P(transport_suite, sender_asleep_after_full_is_woken_when_there_is_room) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    mutable_bytes bytes = patterned(3000, 1);
    std::uint64_t count = 0;
    operation* refused = nullptr;
    while (refused == nullptr && count < 20000) {
        operation& op = over.a.try_post(request::send(over.b_at_a, count, bytes));
        if (op.refused()) refused = &op;
        ++count;
    }
    if (refused == nullptr) GTEST_SKIP() << "this transport is never full";
    bool took = false;
    auto try_again = [&] { took = took || refused->post() != posted::full; };
    while (over.a.progress() != 0) {
    }
    try_again();
    if (!took) {
        over.b.on_arrival = [](message&) {};
        do {
            while (over.a.progress() != 0) {
            }
            try_again();
        } while (!took && !over.a.end().prepare_to_sleep());
        wake_until(
            over.a, over.b, [&] { return took; }, try_again);
    }
    finish(*refused);
}

TEST_P(transport_suite, sleep_is_refused_while_there_is_work) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    operation& op = over.a.try_post(request::receive(peer_id{99}, 1, zeroed(8)));
    EXPECT_FALSE(over.a.end().prepare_to_sleep()) << "a completion waits to run";
    finish(op);
}

TEST_P(transport_suite, idle_port_is_left_asleep) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    flush(over);
    // An occasional heartbeat is allowed, and so is an adapting timer; a handle readable without
    // cause is not. On a busy machine a sleep takes longer, so more are tried.
    int quiet = 0;
    int naps = 0;
    while (naps < 40 || (quiet < naps / 2 && naps < 1000)) {
        for (node* each : {&over.a, &over.b})
            fall_asleep(*each);
        pollfd handles[] = {{over.a.end().wait_handle(), POLLIN, 0},
                            {over.b.end().wait_handle(), POLLIN, 0}};
        constexpr int nap_ms = 10;
        if (::poll(handles, 2, nap_ms) == 0) ++quiet;
        ++naps;
    }
    EXPECT_GE(quiet, naps / 2) << "of " << naps << " naps";
}

TEST_P(transport_suite, both_ends_asleep_in_two_processes_wake_each_other) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    int rounds = is_brief() ? 200 : 1000;
    child_process& other = spawn([&](channel& parent) {
        node& at = open();
        parent.say(at.end().address());
        int came = 0;
        at.on_arrival = [&](message& got) {
            ++came;
            at.try_post(request::send(got.from(), got.tag(), {}));
        };
        sleep_until(at, [&] { return came >= 1; });
        int woken = sleep_until(at, [&] { return came == rounds; });
        while (at.progress() != 0) {
        }
        parent.say(std::to_string(woken));
        parent.hear();
    });
    node& here = open();
    peer_id peer = here.end().lookup(hear(other)).value();
    int woken = 0;
    for (int i = 0; i < rounds; ++i) {
        start(here, request::send(peer, static_cast<std::uint64_t>(i), {}));
        const int woken_now = sleep_until(here, [&] { return !here.arrived.empty(); });
        // Some transports (UCX) leave the handle readable while they connect.
        if (i > 0) woken += woken_now;
        ASSERT_EQ(here.arrived.front().tag, static_cast<std::uint64_t>(i));
        here.arrived.pop_front();
    }
    int woken_there = std::stoi(hear(other));
    // Only a few wake-ups per message: they slept, and the handle was not always readable.
    EXPECT_LT(woken, rounds * 10);
    EXPECT_LT(woken_there, rounds * 10);
    other.line().say("done");
    EXPECT_EQ(other.join(), 0);
}

}  // namespace
}  // namespace amalgam::conformance
