#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "conformance/child_process.hpp"
#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {

/// For tests: a process whose port answers each message with the same.
inline int echo_at(const std::string& where, conformance::channel& parent) {
    tcp_test_port here(transport_registry::installed().open(where, trusting()).value());
    std::deque<tcp_test_port::arrival> waiting;
    here.on_arrival = [&](message& what) {
        waiting.push_back({what.from(), what.tag(), here.arrived.back().text});
        here.arrived.clear();
    };
    parent.say(here.end->address());
    bool over = false;
    move_until({&here}, [&] {
        while (!waiting.empty() &&
               here.send(waiting.front().from, waiting.front().tag, waiting.front().text))
            waiting.pop_front();
        return over = over || parent.overhear().has_value();
    });
    return 0;
}

/// A peer that stands still in the midst of sealed packets keeps nobody waiting but who talks to
/// it, goes on where it was, and is reached anew by who closed its connection meanwhile.
inline void expect_a_stopped_peer_holds_nobody_up(const std::string& where) {
    conformance::child_process still(
        [&](conformance::channel& parent) { return echo_at(where, parent); });
    const std::string address = still.line().hear();
    tcp_test_port here(transport_registry::installed().open(where, trusting()).value());
    tcp_test_port other(transport_registry::installed().open(where, trusting()).value());
    const auto [to_other, to_here] = connect(here, other);
    other.on_arrival = [&, back = to_here](message&) { (void)other.send(back, 9, "pong"); };
    const peer_id there = here.look_up(address);

    std::uint64_t said = 0;
    std::deque<tcp_test_port::operation> under_way;
    const auto say = [&](const peer_id& whom, std::uint64_t last) {
        for (; said < last; ++said)
            if (here.post(whom, said, std::to_string(said), under_way.emplace_back()) ==
                posted::full)
                return;
    };
    std::uint64_t answered = 0, pongs = 0;
    const auto next_of = [&] {
        for (; !here.arrived.empty(); here.arrived.pop_front()) {
            const auto& each = here.arrived.front();
            if (each.text == "pong") {
                ++pongs;
                continue;
            }
            EXPECT_EQ(each.text, std::to_string(answered));
            ++answered;
        }
        return answered;
    };
    say(there, 9);
    move_until({&here, &other}, [&] { return next_of() == 9; });
    still.freeze();
    // What its library takes without it, and then what waits here.
    say(there, 2000);
    for (int i = 0; i < 100; ++i) {
        const std::uint64_t before = pongs;
        ASSERT_TRUE(here.send(to_other, 9, "ping"));
        move_until({&here, &other}, [&] { return next_of(), pongs > before; });
    }
    still.thaw();
    move_until({&here, &other}, [&] {
        say(there, 2000);
        return next_of() == 2000 || !here.lost.empty();
    });
    EXPECT_TRUE(here.lost.empty());

    said = answered = 0;
    still.freeze();
    here.end->close(there);
    const peer_id again = here.look_up(address);
    say(again, 5);
    for (int i = 0; i < 100; ++i)
        here.end->progress();
    still.thaw();
    move_until({&here, &other}, [&] { return next_of() == 5; });
    EXPECT_TRUE(contains(here.end->explain(), "; 0 packets that were changed"))
        << here.end->explain();
    still.line().say("end");
    move_until({&here, &other}, [&] { return !here.lost.empty(); });
    EXPECT_EQ(still.join(), 0);
}

}  // namespace amalgam::detail
