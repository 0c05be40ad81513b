#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/multipath_transfer.hpp>
#include <amalgam/tasks/event.hpp>

#include "conformance/random_segments.hpp"
#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A server at two addresses, and a client.
struct two_ways {
    explicit two_ways(const port_options& of_server = {}, const port_options& of_client = {},
                      const loop_options& network = {})
        : net(network),
          server(ports_of("a", "b", of_server)),
          client(net.port("client", of_client)) {
        server.define("twice", [](int n) { return 2 * n; });
        server.define("length", [](std::string text) { return text.size(); });
        server.define("port", [] { return call_context::current().port(); });
    }
    std::vector<std::unique_ptr<port>> ports_of(const char* one, const char* other,
                                                const port_options& how) {
        std::vector<std::unique_ptr<port>> both;
        both.push_back(net.port(one, how));
        both.push_back(net.port(other, how));
        return both;
    }
    template <typename Work>
    auto in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    peer find(std::vector<std::string> addresses = {"loop://a", "loop://b"}) {
        return in_client([&] { return client.lookup(addresses); });
    }
    result<int> twice(const peer& there, int n) {
        return in_client(
            [&, n] { return client.procedure<int(int)>("twice").on(there).try_call(n); });
    }
    std::size_t port_used(const peer& there) {
        return in_client([&] { return client.procedure<std::size_t()>("port").on(there)(); });
    }
    /// Cuts the server off at one of its addresses until both ends have given up that path.
    void lose(const char* name) {
        net.cut(name);
        net.run_until_idle();
        net.heal(name);
    }

    loop_network net;
    engine server;
    engine client;
};

TEST(routes, several_addresses_of_an_engine_name_one_peer) {
    two_ways t;
    const peer there = t.find(t.server.addresses());
    EXPECT_EQ(there.address(), "loop://a");
    EXPECT_EQ(t.twice(there, 21).value(), 42);
    EXPECT_EQ(there.explain(),
              "loop://a is used (in this process): the best of 2 that work; loop://b (also works, "
              "in this process)");
    EXPECT_EQ(t.find({"loop://b", "loop://a", "loop://b"}).address(), "loop://b");
    EXPECT_EQ(t.client.lookup("loop://client").explain(),
              "this engine itself: messages to it use no transport");
    EXPECT_TRUE(t.find({"loop://client"}).is_self());
}

TEST(routes, near_ways_come_before_far_ones_and_copies_before_messages) {
    using detail::rank_of;
    capabilities process, host, host_copies, far;
    process.between_processes = false;
    host_copies.rma = rma_mode::cross_memory;
    far.between_hosts = true;
    EXPECT_LT(rank_of(nullptr, 9), rank_of(&process, 0));
    EXPECT_LT(rank_of(&process, 9), rank_of(&host_copies, 0));
    EXPECT_LT(rank_of(&host_copies, 9), rank_of(&host, 0));
    EXPECT_LT(rank_of(&host, 9), rank_of(&far, 0));
    EXPECT_LT(rank_of(&far, 0), rank_of(&far, 1));
    EXPECT_LT(rank_of(&host, ~std::size_t{0}), rank_of(&far, 0));
}

TEST(routes, an_address_of_another_engine_is_not_used) {
    two_ways t;
    engine other(t.net.port("other"));
    other.define("twice", [](int) { return -1; });
    const peer there = t.find({"loop://a", "loop://other"});
    EXPECT_EQ(there.explain(),
              "loop://a is used (in this process): the best of 1 that works; loop://other (another "
              "engine answers at this address)");
    t.lose("a");
    EXPECT_EQ(t.twice(there, 1).code(), errc::disconnected);
}

TEST(routes, an_engine_that_claims_to_be_another_must_prove_it) {
    two_ways t;
    engine liar(t.net.port("liar"));
    // It knows the number of the server's run, which is no secret, but has no ticket.
    liar.undefine(detail::library_name{detail::introduction::procedure});
    liar.define(detail::library_name{detail::introduction::procedure},
                [&](const detail::introduction& asked) {
                    detail::introduction mine = asked;
                    mine.home = t.server.core().home();
                    mine.proof = 1;
                    return mine;
                });
    EXPECT_NE(t.find({"loop://a", "loop://liar"}).explain().find("loop://liar (another engine"),
              std::string::npos);
    // An invented ticket does not help, either.
    const auto asks = t.client.procedure<detail::introduction(detail::introduction)>(
        detail::introduction::procedure);
    const peer b = t.client.lookup("loop://b");
    const auto answer = t.in_client(
        [&] { return asks.on(b).try_call({.home = t.client.core().home(), .ticket = 12345}); });
    EXPECT_EQ(answer.code(), errc::handler_failed);
}

TEST(routes, addresses_where_nobody_is_are_left_out_and_no_loss_is_told) {
    two_ways t;
    int told = 0;
    const auto watch = t.client.on_peer_lost([&](const peer&, status) { ++told; });
    const peer there = t.find({"loop://nobody", "loop://b"});
    EXPECT_EQ(there.address(), "loop://b");
    EXPECT_NE(there.explain().find("; loop://nobody (no answer)"), std::string::npos)
        << there.explain();
    const error why = error_of([&] { t.find({"loop://nobody", "tcp://127.0.0.1:1"}); });
    EXPECT_EQ(why.code(), errc::unreachable);
    EXPECT_STREQ(why.what(),
                 "none of the addresses leads to the engine: loop://nobody (no answer), "
                 "tcp://127.0.0.1:1 (no port of this engine speaks tcp, only loop)");
    EXPECT_EQ(told, 0);
}

TEST(routes, wrong_addresses_are_refused_at_once) {
    two_ways t;
    const auto code_of = [&](std::vector<std::string> list) {
        return error_of([&] { (void)t.client.start_lookup(list); }).code();
    };
    EXPECT_EQ(code_of({}), errc::invalid);
    EXPECT_EQ(code_of({"loop://a", "loop:/b"}), errc::invalid);
    EXPECT_EQ(code_of({"tcp://127.0.0.1:1"}), errc::unsupported);
    EXPECT_EQ(error_of([&] {
                  t.client.lookup({"loop://a", "loop://b"});
              }).code(),
              errc::invalid)
        << "nobody would bring the answer";
    t.client.stop();
    EXPECT_EQ(code_of({"loop://a"}), errc::closed);
}

TEST(routes, a_silent_address_holds_the_answer_up_for_a_moment_only) {
    two_ways t;
    t.net.cut("a");
    const auto begun = t.net.now();
    auto later = t.client.start_lookup(t.server.addresses());
    t.net.run_for(300ms);
    ASSERT_TRUE(later.ready());
    const peer there = later.get();
    EXPECT_EQ(there.address(), "loop://b");
    // It may still connect, and then becomes another path.
    t.net.heal("a");
    t.net.run_until_idle();
    EXPECT_NE(there.explain().find("loop://a (also works"), std::string::npos) << there.explain();
    t.lose("b");
    EXPECT_EQ(t.twice(there, 2).value(), 4);
    EXPECT_LT(t.net.now() - begun, 60s);
}

TEST(routes, when_a_way_is_lost_calls_take_the_next_and_the_peer_is_lost_with_the_last) {
    two_ways t;
    std::vector<std::pair<peer, errc>> told, told_there;
    const auto watch = t.client.on_peer_lost(
        [&](const peer& who, status why) { told.emplace_back(who, why.code); });
    const auto watch_there = t.server.on_peer_lost(
        [&](const peer& who, status why) { told_there.emplace_back(who, why.code); });
    const peer there = t.find();
    EXPECT_EQ(t.port_used(there), 0u);
    t.lose("a");
    EXPECT_EQ(t.port_used(there), 1u);
    EXPECT_EQ(there.address(), "loop://b");
    EXPECT_NE(there.explain().find("loop://b is used"), std::string::npos);
    EXPECT_NE(there.explain().find("loop://a (lost)"), std::string::npos) << there.explain();
    EXPECT_TRUE(told.empty());
    EXPECT_TRUE(told_there.empty());
    t.lose("b");
    EXPECT_EQ(told, (std::vector<std::pair<peer, errc>>{{there, errc::disconnected}}));
    EXPECT_EQ(told_there.size(), 2u) << "each way that the client came by, once";
    EXPECT_EQ(t.twice(there, 1).code(), errc::disconnected);
    EXPECT_EQ(there.explain(), "no path to the peer is left: look up its addresses again");
    // Again, with new names.
    const peer again = t.find();
    EXPECT_FALSE(again == there);
    EXPECT_EQ(t.twice(again, 3).value(), 6);
}

TEST(routes, a_peer_by_one_address_gains_the_ways_of_its_engine) {
    two_ways t;
    int told = 0;
    const auto watch = t.client.on_peer_lost([&](const peer&, status) { ++told; });
    const peer alone = t.client.lookup("loop://a");
    const peer there = t.find();
    EXPECT_TRUE(alone == there);
    const peer other = t.client.lookup("loop://b");
    t.lose("b");
    EXPECT_EQ(t.twice(other, 4).value(), 8);
    t.lose("a");
    EXPECT_EQ(told, 2) << "each name that was given out, once";
}

TEST(routes, a_call_under_way_ends_with_its_way_unless_it_may_be_made_again) {
    two_ways t;
    event never;
    int runs = 0;
    t.server.define("first_never", [&](int n) {
        if (++runs <= 2) never.wait();
        return n;
    });
    const peer there = t.find();
    auto once = t.client.procedure<int(int)>("first_never").on(there).start(1);
    auto again = t.client.procedure<int(int)>("first_never", {.idempotent = true})
                     .on(there)
                     .retrying(3)
                     .start(7);
    t.net.run_for(1ms);
    ASSERT_EQ(runs, 2);
    t.lose("a");
    EXPECT_EQ(once.wait().code, errc::disconnected);
    ASSERT_TRUE(again.ready());
    EXPECT_EQ(again.get(), 7);
    EXPECT_EQ(runs, 3);
    never.set();
}

TEST(routes, large_arguments_and_one_way_calls_take_the_next_way_too) {
    two_ways t;
    const std::string large(300'000, 'x');
    std::string noted;
    t.server.define("note", [&](std::string text) { noted = std::move(text); });
    t.server.define("lose_first", [&, runs = 0](std::string text) mutable {
        if (++runs == 1) t.net.cut("a");
        return text.size();
    });
    const peer there = t.find();
    // Fetched with a key for one port, then with one for another.
    auto length = t.client.procedure<std::size_t(std::string)>("lose_first", {.idempotent = true})
                      .on(there)
                      .retrying(3)
                      .start(large);
    t.net.run_until_idle();
    ASSERT_TRUE(length.ready());
    EXPECT_EQ(length.get(), large.size());
    EXPECT_EQ(there.address(), "loop://b");
    auto plain = t.client.procedure<std::size_t(std::string)>("length").on(there).start(large);
    t.client.procedure<void(std::string)>("note").on(there).post("one");
    t.net.run_until_idle();
    EXPECT_EQ(plain.get(), large.size());
    EXPECT_EQ(noted, "one");
}

TEST(routes, whatever_operation_fails_a_lookup_ends_once_and_finds_who_is_left) {
    for (std::uint64_t n = 1;; ++n) {
        two_ways t;
        t.net.fail_operation(n);
        auto later = t.client.start_lookup(t.server.addresses());
        t.net.run_until_idle();
        ASSERT_TRUE(later.ready()) << n;
        ASSERT_TRUE(later.wait().ok()) << n;
        const peer there = later.get();
        EXPECT_EQ(t.net.open_operations(), 0u);
        const bool none_failed = t.net.operations() < n;
        t.net.fail_operation(~std::uint64_t{0});
        EXPECT_EQ(t.twice(there, 5).value(), 10) << n;
        if (none_failed) break;
    }
}

TEST(routes, the_end_of_either_engine_ends_a_lookup) {
    for (const bool mine : {true, false}) {
        two_ways t;
        t.net.delay(1ms);
        auto later = t.client.start_lookup(t.server.addresses());
        t.net.run_for(500us);
        (mine ? t.client : t.server).stop();
        t.net.run_until_idle();
        ASSERT_TRUE(later.ready()) << mine;
        EXPECT_EQ(later.wait().code, errc::unreachable);
    }
}

TEST(routes, names_outlive_the_engine_that_is_stopped) {
    two_ways t;
    const peer there = t.find();
    t.client.stop();
    EXPECT_EQ(there.explain(), "no path to the peer is left: look up its addresses again");
}

/// A client that moves bytes from and to the server's memory.
struct two_ways_of_bytes : two_ways {
    explicit two_ways_of_bytes(const port_options& of_server = {},
                               const port_options& of_client = {}, const loop_options& network = {})
        : two_ways(of_server, of_client, network) {
        shown.emplace(server.core(), scatter(&whole, 1), access::read_write);
        there = find();
    }
    ~two_ways_of_bytes() {
        shown.reset();
        net.run_until_idle();
        EXPECT_TRUE(client.core().transfers().is_at_rest());
        EXPECT_EQ(net.open_operations(), 0u);
    }

    detail::routed_target target(bool striped) {
        return {.first = {.core = &client.core(),
                          .there = there,
                          .key = shown->key(0),
                          .piece_bytes = 50'000},
                .keys = {shown->key(0), shown->key(1)},
                .home = server.core().home(),
                .striped = striped};
    }
    future<void> get(bool striped, seeded_random& random) {
        auto one = std::make_unique<detail::multipath_transfer>(target(striped));
        one->get_copy(conformance_cut(mutable_bytes(mine), random));
        return one.release()->launch();
    }
    future<void> put(bool striped, seeded_random& random) {
        auto one = std::make_unique<detail::multipath_transfer>(target(striped));
        one->put_copy(conformance_cut(const_bytes(mine), random));
        return one.release()->launch();
    }
    template <typename Bytes>
    static std::vector<Bytes> conformance_cut(Bytes bytes, seeded_random& random) {
        return cut(bytes, 1 + random.below(20), random);
    }

    std::vector<std::byte> memory = pattern(1'000'003);
    mutable_bytes whole{memory};
    std::vector<std::byte> mine = std::vector<std::byte>(memory.size());
    std::optional<detail::exposure> shown;
    peer there;
};

/// Bytes of frames that arrived at this port, roughly the traffic over this path.
struct traffic {
    explicit traffic(loop_network& net) {
        net.on_event([this](const loop_event& e) {
            if (e.what != loop_event::kind::frame) return;
            if (e.from == "a" || e.to == "a") a += e.bytes;
            if (e.from == "b" || e.to == "b") b += e.bytes;
        });
    }
    std::size_t a = 0, b = 0;
};

TEST(multipath_transfer, takes_one_way_or_all_as_asked) {
    for (const bool striped : {false, true}) {
        two_ways_of_bytes t;
        seeded_random random(3);
        const traffic seen(t.net);
        auto got = t.get(striped, random);
        t.net.run_until_idle();
        EXPECT_TRUE(got.wait().ok());
        EXPECT_TRUE(t.mine == t.memory);
        EXPECT_GT(seen.a, 300'000u);
        if (striped) {
            EXPECT_GT(seen.b, 300'000u);
        } else {
            EXPECT_LT(seen.b, 1000u);
        }
        t.mine = pattern(t.mine.size(), 5);
        auto put = t.put(striped, random);
        t.net.run_until_idle();
        EXPECT_TRUE(put.wait().ok());
        EXPECT_TRUE(t.mine == t.memory);
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
    }
}

TEST(multipath_transfer, loses_and_doubles_nothing_whatever_operation_fails) {
    for (const bool striped : {false, true}) {
        for (const bool is_put : {false, true}) {
            for (std::uint64_t n = 1;; ++n) {
                two_ways_of_bytes t;
                seeded_random random(n);
                if (is_put) t.mine = pattern(t.mine.size(), 8);
                t.net.fail_operation(n);
                const std::uint64_t before = t.net.operations();
                auto later = is_put ? t.put(striped, random) : t.get(striped, random);
                t.net.run_until_idle();
                ASSERT_TRUE(later.ready()) << n;
                ASSERT_TRUE(later.wait().ok()) << n;
                ASSERT_TRUE(t.mine == t.memory) << n;
                ASSERT_EQ(t.client.core().transfers().pending(), 0u);
                ASSERT_EQ(t.net.open_operations(), 0u);
                if (t.net.operations() < before + n) {
                    EXPECT_GT(n, 20u);
                    break;
                }
            }
        }
    }
}

TEST(multipath_transfer, goes_on_when_a_way_is_cut_and_ends_when_all_are) {
    for (const bool striped : {false, true}) {
        two_ways_of_bytes t;
        seeded_random random(9);
        t.net.delay(1ms);
        auto goes_on = t.get(striped, random);
        t.net.run_for(1500us);
        t.net.cut("a");
        t.net.run_until_idle();
        EXPECT_TRUE(goes_on.wait().ok());
        EXPECT_TRUE(t.mine == t.memory);
        auto ends = t.put(striped, random);
        t.net.run_for(500us);
        t.net.cut("b");
        t.net.run_until_idle();
        EXPECT_EQ(ends.wait().code, errc::disconnected);
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
        auto late = t.get(striped, random);
        t.net.run_until_idle();
        EXPECT_EQ(late.wait().code, errc::disconnected);
    }
}

TEST(multipath_transfer, of_a_put_ends_when_the_other_side_has_given_up_the_lost_way_too) {
    // The client gives up a silent path long before the server does.
    two_ways_of_bytes t({.silence_limit = 60s}, {.silence_limit = 1s});
    seeded_random random(4);
    t.net.delay(1ms);
    t.mine = pattern(t.mine.size(), 6);
    auto later = t.put(true, random);
    t.net.run_for(500us);
    t.net.cut("b");
    t.net.run_for(5s);
    ASSERT_TRUE(later.ready());
    ASSERT_TRUE(later.wait().ok());
    EXPECT_TRUE(t.mine == t.memory);
    // Not because of its own silence limit, which has not passed.
    EXPECT_EQ(counters_of(t.server).at("rpc.peers_lost"), 1u);
    // So the memory may be reused.
    std::fill(t.memory.begin(), t.memory.end(), std::byte{1});
    t.net.heal("b");
    t.net.run_for(120s);
    EXPECT_EQ(std::count(t.memory.begin(), t.memory.end(), std::byte{1}),
              static_cast<long>(t.memory.size()));
}

/// Sent frames cannot be withdrawn, unlike borrowed ones.
constexpr loop_options no_lending{.inline_bytes = std::size_t{1} << 20};

/// How a put over two paths is abandoned.
enum class given_up { canceled, timed_out };

future<void> put_until(two_ways_of_bytes& t, given_up how, clock::duration timeout) {
    detail::routed_target to = t.target(true);
    if (how == given_up::timed_out) to.first.timeout = timeout;
    auto* const one = new detail::multipath_transfer(to);
    const const_bytes all(t.mine);
    one->put_copy(gather(&all, 1));
    return one->launch();
}

bool is_all(const std::vector<std::byte>& memory, std::byte what) {
    return std::count(memory.begin(), memory.end(), what) == static_cast<long>(memory.size());
}

TEST(multipath_transfer, given_up_ends_when_its_slowest_way_is_quiet) {
    for (const given_up how : {given_up::canceled, given_up::timed_out}) {
        two_ways_of_bytes t({}, {}, no_lending);
        t.net.delay(1ms);
        t.mine = pattern(t.mine.size(), 6);
        auto later = put_until(t, how, 600us);
        t.net.run_for(500us);
        t.net.cut("b");  // Frames in flight to it are delayed.
        if (how == given_up::canceled) later.cancel();
        t.net.run_for(2s);
        EXPECT_FALSE(later.ready());
        t.net.heal("b");
        while (!later.ready())
            t.net.run_for(10us);
        EXPECT_EQ(later.wait().code, how == given_up::canceled ? errc::canceled : errc::timed_out);
        std::fill(t.memory.begin(), t.memory.end(), std::byte{1});
        t.net.run_until_idle();
        EXPECT_TRUE(is_all(t.memory, std::byte{1}));
        EXPECT_EQ(counters_of(t.client).at("rpc.peers_lost"), 0u);
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
    }
}

TEST(multipath_transfer, given_up_ends_when_the_other_side_has_given_up_the_lost_way_too) {
    for (const given_up how : {given_up::canceled, given_up::timed_out}) {
        two_ways_of_bytes t({.silence_limit = 60s}, {.silence_limit = 1s}, no_lending);
        t.net.delay(1ms);
        t.mine = pattern(t.mine.size(), 6);
        auto later = put_until(t, how, 600us);
        t.net.run_for(500us);
        t.net.cut("b");
        if (how == given_up::canceled) later.cancel();
        while (!later.ready())
            t.net.run_for(10us);
        EXPECT_EQ(later.wait().code, how == given_up::canceled ? errc::canceled : errc::timed_out);
        EXPECT_EQ(counters_of(t.server).at("rpc.peers_lost"), 1u);
        std::fill(t.memory.begin(), t.memory.end(), std::byte{1});
        t.net.heal("b");
        t.net.run_for(120s);
        EXPECT_TRUE(is_all(t.memory, std::byte{1}));
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
    }
}

TEST(multipath_transfer, given_up_is_disconnected_when_no_way_is_left_to_ask_by) {
    for (const given_up how : {given_up::canceled, given_up::timed_out}) {
        two_ways_of_bytes t({}, {}, no_lending);
        t.net.delay(1ms);
        auto later = put_until(t, how, 600us);
        t.net.run_for(500us);
        t.net.cut("a");
        t.net.cut("b");
        if (how == given_up::canceled) later.cancel();
        t.net.run_until_idle();
        ASSERT_TRUE(later.ready());
        EXPECT_EQ(later.wait().code, errc::disconnected);
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
        EXPECT_EQ(t.net.open_operations(), 0u);
    }
}

TEST(multipath_transfer, that_went_well_is_not_torn_by_an_earlier_one_that_was_given_up) {
    for (const given_up how : {given_up::canceled, given_up::timed_out}) {
        two_ways_of_bytes t({}, {}, no_lending);
        seeded_random random(5);
        t.net.delay(1ms);
        auto first = put_until(t, how, 600us);
        t.net.run_for(500us);
        t.net.cut("b");
        if (how == given_up::canceled) first.cancel();
        for (int i = 0; i < 100 && !first.ready(); ++i)
            t.net.run_for(100us);
        if (!first.ready()) t.net.heal("b");
        while (!first.ready())
            t.net.run_for(10us);
        // Everything abandoned has arrived by now, or the second put overtakes it over path "a".
        t.mine = pattern(t.mine.size(), 7);
        auto second = t.put(true, random);
        t.net.run_for(10ms);
        t.net.heal("b");
        while (!second.ready())
            t.net.run_for(10us);
        EXPECT_TRUE(second.wait().ok());
        t.net.run_until_idle();
        EXPECT_TRUE(t.memory == t.mine);
    }
}

TEST(multipath_transfer, ends_with_its_deadline_cancel_or_engine) {
    for (int how = 0; how < 4; ++how) {
        two_ways_of_bytes t;
        t.net.delay(1ms);
        detail::routed_target to = t.target(true);
        if (how == 0) to.first.timeout = 1200us;
        auto* const one = new detail::multipath_transfer(to);
        const mutable_bytes all(t.mine);
        one->get_copy(scatter(&all, 1));
        auto later = one->launch();
        if (how == 3) later.cancel();
        t.net.run_for(1500us);
        if (how == 1) later.cancel();
        if (how == 2) t.client.stop();
        constexpr errc ends[] = {errc::timed_out, errc::canceled, errc::closed, errc::canceled};
        ASSERT_TRUE(later.ready()) << how;
        EXPECT_EQ(later.wait().code, ends[how]) << how;
        const auto then = t.mine;
        t.net.run_until_idle();
        EXPECT_TRUE(t.mine == then);
        EXPECT_EQ(t.client.core().transfers().pending(), 0u);
    }
}

TEST(multipath_transfer, a_key_that_is_not_shown_any_more_is_denied) {
    two_ways_of_bytes t;
    const detail::routed_target stale = t.target(true);
    t.shown.reset();
    auto* const one = new detail::multipath_transfer(stale);
    const mutable_bytes all(t.mine);
    one->get_copy(scatter(&all, 1));
    auto later = one->launch();
    t.net.run_until_idle();
    EXPECT_EQ(later.wait().code, errc::denied);
}

}  // namespace
}  // namespace amalgam
