#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/transfer.hpp>

#include "conformance/random_segments.hpp"
#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

/// The result of a started transfer.
struct started {
    future<void> later;
    errc code() {
        if (!later.ready()) return errc::internal;
        return later.wait().code;
    }
};

struct transfer_pair : loop_pair {
    std::vector<std::byte> memory = pattern(std::size_t{3} << 20);
    mutable_bytes whole{memory};
    std::optional<exposure> shown;
    peer server_there;
    std::vector<std::byte> mine = std::vector<std::byte>(memory.size());

    explicit transfer_pair(const loop_options& network = {}) : loop_pair(network) {
        shown.emplace(server.core(), scatter(&whole, 1), access::read_write);
        server_there = there();
    }
    ~transfer_pair() {
        shown.reset();
        net.run_until_idle();
        EXPECT_TRUE(client.core().transfers().is_at_rest());
        EXPECT_EQ(net.open_operations(), 0u);
    }

    transfer_target target(std::uint64_t offset = 0) {
        return {
            .core = &client.core(), .there = server_there, .key = shown->key(0), .offset = offset};
    }
    started get(const transfer_target& from, mutable_bytes into) {
        auto* const one = new future_transfer(from);
        one->get_copy(scatter(&into, 1));
        return {one->launch()};
    }
    started put(const transfer_target& to, const_bytes from) {
        auto* const one = new future_transfer(to);
        one->put_copy(gather(&from, 1));
        return {one->launch()};
    }
};

TEST(transfer, brings_any_range_into_any_list_and_back) {
    transfer_pair p;
    seeded_random random(7);
    for (int round = 0; round < 40; ++round) {
        const std::size_t bytes = random.below(p.memory.size());
        const std::size_t offset = random.below(p.memory.size() - bytes);
        std::fill(p.mine.begin(), p.mine.end(), std::byte{0});
        const auto into = cut(mutable_bytes(p.mine).first(bytes), 1 + random.below(40), random);
        transfer_target target = p.target(offset);
        target.piece_bytes = round % 2 == 0 ? 0 : 1 + random.below(bytes / 4 + 4096);
        auto* get = new future_transfer(target);
        get->get_copy(into);
        started one{get->launch()};
        p.net.run_until_idle();
        ASSERT_EQ(one.code(), errc::ok);
        ASSERT_TRUE(std::equal(p.mine.begin(), p.mine.begin() + static_cast<long>(bytes),
                               p.memory.begin() + static_cast<long>(offset)));

        const auto fresh = pattern(bytes, static_cast<unsigned>(round) + 2);
        auto model = p.memory;
        std::copy(fresh.begin(), fresh.end(), model.begin() + static_cast<long>(offset));
        const auto from = cut(const_bytes(fresh), 1 + random.below(40), random);
        auto* put = new future_transfer(target);
        put->put_copy(from);
        started two{put->launch()};
        p.net.run_until_idle();
        ASSERT_EQ(two.code(), errc::ok);
        ASSERT_TRUE(p.memory == model);
    }
    EXPECT_EQ(counters_of(p.client).at("rpc.transfers"), 80u);
}

TEST(transfer, finds_own_memory_by_its_own_key) {
    transfer_pair p;
    std::vector<mutable_bytes> parts{p.whole.first(10), p.whole.subspan(10, 0),
                                     p.whole.subspan(10)};
    exposure own(p.client.core(), parts, access::read_write);
    const peer self = p.client.lookup(p.client.address());
    ASSERT_TRUE(self.is_self());
    transfer_target target = p.target(5);
    target.there = self;
    target.key = own.key(peer::self_port);
    const std::size_t bytes = p.memory.size() - 5;
    auto got = p.get(target, mutable_bytes(p.mine).first(bytes));
    p.net.run_until_idle();
    EXPECT_EQ(got.code(), errc::ok);
    EXPECT_TRUE(std::equal(p.memory.begin() + 5, p.memory.end(), p.mine.begin()));
    const auto fresh = pattern(100, 9);
    auto gone = p.put(target, fresh);
    p.net.run_until_idle();
    EXPECT_EQ(gone.code(), errc::ok);
    EXPECT_TRUE(std::equal(fresh.begin(), fresh.end(), p.memory.begin() + 5));
    target.key.secret ^= 1;
    EXPECT_EQ(p.get(target, mutable_bytes(p.mine).first(1)).code(), errc::denied);
}

TEST(transfer, those_to_ourselves_take_turns_of_a_mebibyte) {
    struct watched final : future_transfer {
        watched(const transfer_target& target, char letter, std::string& order)
            : future_transfer(target), letter_(letter), order_(order) {}
        failure progressed() noexcept override {
            order_ += letter_;
            return {};
        }
        char letter_;
        std::string& order_;
    };
    transfer_pair p;
    exposure own(p.client.core(), scatter(&p.whole, 1), access::read);
    transfer_target target = p.target();
    target.there = p.client.lookup(p.client.address());
    target.key = own.key(peer::self_port);
    target.piece_bytes = std::size_t{256} << 10;
    std::string order;
    std::vector<std::byte> others(p.mine.size());
    const mutable_bytes mine(p.mine), more(others);
    auto* const a = new watched(target, 'a', order);
    a->get_copy(scatter(&mine, 1));
    auto* const b = new watched(target, 'b', order);
    b->get_copy(scatter(&more, 1));
    started first{a->launch()}, second{b->launch()};
    p.net.run_until_idle();
    EXPECT_EQ(first.code(), errc::ok);
    EXPECT_EQ(second.code(), errc::ok);
    EXPECT_EQ(order, "aaaabbbbaaaabbbbaaaabbbb");
    EXPECT_EQ(p.mine, p.memory);
    EXPECT_EQ(others, p.memory);
}

TEST(transfer, past_the_end_or_without_the_right_moves_nothing) {
    transfer_pair p;
    const mutable_bytes into = mutable_bytes(p.mine).first(2);
    EXPECT_EQ(p.get(p.target(p.memory.size() - 1), into).code(), errc::invalid);
    EXPECT_EQ(p.get(p.target(~std::uint64_t{0}), into).code(), errc::invalid);
    transfer_target target = p.target();
    target.key.rights = access::write;
    EXPECT_EQ(p.get(target, into).code(), errc::denied);
    target.key.rights = access::read;
    EXPECT_EQ(p.put(target, into).code(), errc::denied);
    target = p.target();
    target.there = peer();
    EXPECT_EQ(p.get(target, into).code(), errc::invalid);
    target.there = p.server.lookup("loop://client");
    EXPECT_EQ(p.get(target, into).code(), errc::invalid);
    EXPECT_EQ(p.client.core().transfers().pending(), 0u);
}

TEST(transfer, forged_and_stale_keys_are_denied_by_the_peer) {
    transfer_pair p;
    transfer_target target = p.target();
    const mutable_bytes into = mutable_bytes(p.mine).first(100);
    target.key.secret ^= 1;
    auto forged = p.get(target, into);
    p.net.run_until_idle();
    EXPECT_EQ(forged.code(), errc::denied);
    target = p.target();
    p.shown.reset();
    auto stale = p.put(target, into);
    p.net.run_until_idle();
    EXPECT_EQ(stale.code(), errc::denied);
    EXPECT_EQ(p.memory, pattern(p.memory.size()));
}

TEST(transfer, exposed_to_one_peer_it_has_a_key_for_its_port_only) {
    transfer_pair p;
    exposure to_one(p.client.core(), scatter(&p.whole, 1), access::read, p.server_there);
    EXPECT_NE(to_one.key(0).incarnation, 0u);
    exposure to_self(p.client.core(), scatter(&p.whole, 1), access::read,
                     p.client.lookup(p.client.address()));
    EXPECT_EQ(to_self.key(0).incarnation, 0u);
    EXPECT_NE(to_self.key(peer::self_port).incarnation, 0u);
}

TEST(transfer, cancel_ends_it_once_and_no_byte_moves_after) {
    transfer_pair p;
    p.net.delay(1ms);
    auto one = p.get(p.target(), mutable_bytes(p.mine));
    p.net.run_for(2500us);
    one.later.cancel();
    EXPECT_EQ(one.code(), errc::canceled);
    const auto then = p.mine;
    p.net.run_until_idle();
    EXPECT_EQ(p.mine, then);
    EXPECT_EQ(p.net.open_operations(), 0u);
    EXPECT_EQ(p.client.core().transfers().pending(), 0u);
}

TEST(transfer, deadline_ends_it) {
    transfer_pair p;
    p.net.delay(1ms);
    transfer_target target = p.target();
    target.timeout = 1500us;
    auto late = p.get(target, mutable_bytes(p.mine));
    target.timeout = 0us;
    auto over = p.get(target, mutable_bytes(p.mine));
    EXPECT_EQ(over.code(), errc::timed_out);
    p.net.run_until_idle();
    EXPECT_EQ(late.code(), errc::timed_out);
    EXPECT_EQ(p.net.open_operations(), 0u);
}

TEST(transfer, loss_of_the_peer_ends_all_with_it) {
    transfer_pair p;
    p.net.delay(1ms);
    std::vector<started> many;
    for (int i = 0; i < 20; ++i)
        many.push_back(p.get(p.target(), mutable_bytes(p.mine)));
    p.net.run_for(3ms);
    p.net.kill("server");
    p.net.run_until_idle();
    for (started& each : many)
        EXPECT_EQ(each.code(), errc::disconnected);
    EXPECT_EQ(p.get(p.target(), mutable_bytes(p.mine)).code(), errc::disconnected);
    EXPECT_EQ(p.net.open_operations(), 0u);
}

TEST(transfer, cut_network_ends_it_at_the_silence_limit) {
    transfer_pair p;
    p.net.delay(1ms);
    auto one = p.put(p.target(), p.mine);
    p.net.run_for(1500us);
    p.net.cut("server");
    p.net.run_until_idle();
    EXPECT_EQ(one.code(), errc::disconnected);
}

/// Sent frames cannot be withdrawn, unlike borrowed ones.
constexpr loop_options no_lending{.inline_bytes = std::size_t{1} << 20,
                                  .link_bytes = std::size_t{8} << 20};

TEST(transfer, that_timed_out_or_was_canceled_moves_no_byte_after_its_end) {
    for (const bool is_put : {true, false}) {
        for (const bool canceled : {true, false}) {
            for (const auto after : {0us, 500us, 1000us, 1500us, 1900us}) {
                transfer_pair p(no_lending);
                p.net.delay(1ms);
                transfer_target target = p.target();
                if (!canceled) target.timeout = after;
                p.mine = pattern(p.mine.size(), 2);
                started one = is_put ? p.put(target, p.mine) : p.get(target, p.mine);
                p.net.run_for(after);
                if (canceled) one.later.cancel();
                while (!one.later.ready())
                    p.net.run_for(10us);
                EXPECT_EQ(one.code(), canceled ? errc::canceled : errc::timed_out);
                // Either side may now reuse its memory.
                std::fill(p.mine.begin(), p.mine.end(), std::byte{1});
                std::fill(p.memory.begin(), p.memory.end(), std::byte{2});
                p.net.run_until_idle();
                const auto size = static_cast<long>(p.mine.size());
                EXPECT_EQ(std::count(p.mine.begin(), p.mine.end(), std::byte{1}), size);
                EXPECT_EQ(std::count(p.memory.begin(), p.memory.end(), std::byte{2}), size);
                EXPECT_EQ(p.client.core().transfers().pending(), 0u);
                EXPECT_EQ(p.net.open_operations(), 0u);
            }
        }
    }
}

TEST(transfer, canceled_put_costs_what_is_on_its_way_and_a_canceled_get_nothing) {
    transfer_pair p(no_lending);
    p.net.delay(1ms);
    auto put = p.put(p.target(), p.mine);
    auto get = p.get(p.target(), mutable_bytes(p.mine));
    p.net.run_for(1500us);
    const auto canceled_at = p.net.now();
    get.later.cancel();
    EXPECT_EQ(get.code(), errc::canceled);
    put.later.cancel();
    while (!put.later.ready())
        p.net.run_for(10us);
    EXPECT_EQ(put.code(), errc::canceled);
    EXPECT_LE(p.net.now() - canceled_at, 2010us);
}

TEST(transfer, canceled_put_whose_connection_is_lost_is_disconnected) {
    for (const bool canceled : {true, false}) {
        transfer_pair p(no_lending);
        p.net.delay(1ms);
        transfer_target target = p.target();
        if (!canceled) target.timeout = 2ms;
        auto one = p.put(target, p.mine);
        p.net.run_for(1500us);
        p.net.cut("server");
        if (canceled) one.later.cancel();
        p.net.run_for(1s);
        EXPECT_FALSE(one.later.ready());
        p.net.run_until_idle();
        EXPECT_EQ(one.code(), errc::disconnected);
        EXPECT_NE(one.later.wait().code, errc::canceled);
        EXPECT_EQ(p.client.core().transfers().pending(), 0u);
        EXPECT_EQ(p.net.open_operations(), 0u);
    }
}

TEST(transfer, canceled_put_waits_for_a_peer_that_reads_nothing_until_the_silence_limit) {
    loop_network net;
    // Without a sink, messages stay in the port, which stops reading at this limit.
    const auto server = net.port("server", {.max_queued_bytes = 10'000});
    std::vector<std::byte> memory(300'000), mine = pattern(memory.size());
    const region shown = server->open_region(memory, access::write).value();
    engine client{net.port("client")};
    const peer there = client.lookup("loop://server");
    for (int i = 0; i < 20; ++i)
        client.procedure<void(std::string)>("store").on(there).post(std::string(3000, 'x'));
    net.run_for(1ms);
    auto* const put =
        new future_transfer({.core = &client.core(), .there = there, .key = shown.key()});
    const const_bytes from(mine);
    put->put_copy(gather(&from, 1));
    auto later = put->launch();
    net.run_for(1ms);
    later.cancel();
    net.run_for(4900ms);
    EXPECT_FALSE(later.ready());
    net.run_for(200ms);
    ASSERT_TRUE(later.ready());
    EXPECT_EQ(later.wait().code, errc::disconnected);
    EXPECT_EQ(counters_of(client).at("rpc.peers_lost"), 1u);
    EXPECT_EQ(client.core().transfers().pending(), 0u);
}

TEST(transfer, end_of_the_engine_ends_it_as_closed) {
    transfer_pair p;
    p.net.delay(1ms);
    auto one = p.get(p.target(), mutable_bytes(p.mine));
    p.net.run_for(1500us);
    p.client.stop();
    EXPECT_EQ(one.code(), errc::closed);
    EXPECT_EQ(p.get(p.target(), mutable_bytes(p.mine)).code(), errc::closed);
    p.server.stop();
    EXPECT_EQ(error_of([&] {
                  exposure late(p.server.core(), scatter(&p.whole, 1), access::read);
              }).code(),
              errc::closed);
}

TEST(transfer, whatever_operation_fails_each_ends_once) {
    for (std::uint64_t n = 1;; ++n) {
        transfer_pair p;
        std::uint64_t done = 0;
        p.net.fail_operation(n);
        auto got = p.get(p.target(), mutable_bytes(p.mine));
        auto put = p.put(p.target(1000), const_bytes(p.mine).first(2000000));
        p.net.run_until_idle();
        for (started* each : {&got, &put}) {
            EXPECT_TRUE(each->code() == errc::ok || each->code() == errc::disconnected ||
                        each->code() == errc::unreachable)
                << n << ": " << static_cast<int>(each->code());
            done += each->code() == errc::ok ? 1 : 0;
        }
        EXPECT_EQ(p.client.core().transfers().pending(), 0u);
        EXPECT_EQ(p.net.open_operations(), 0u);
        if (p.net.operations() < n) {
            EXPECT_EQ(done, 2u);
            EXPECT_GT(n, 20u);
            break;
        }
    }
}

TEST(transfer, full_link_only_delays_it) {
    loop_network net({.link_bytes = 4096});
    engine server{net.port("server")}, client{net.port("client")};
    std::vector<std::byte> memory = pattern(1 << 20), mine(memory.size());
    mutable_bytes whole(memory), into(mine);
    exposure shown(server.core(), scatter(&whole, 1), access::read_write);
    const transfer_target target{.core = &client.core(),
                                 .there = client.lookup(server.address()),
                                 .key = shown.key(0),
                                 .piece_bytes = 5000};
    std::vector<started> all;
    const auto fresh = pattern(memory.size(), 3);
    for (int i = 0; i < 3; ++i) {
        auto* const one = new future_transfer(target);
        const const_bytes from(fresh);
        one->put_copy(gather(&from, 1));
        all.push_back({one->launch()});
    }
    net.run_until_idle();
    for (started& each : all)
        EXPECT_EQ(each.code(), errc::ok);
    EXPECT_EQ(memory, fresh);
    auto* const back = new future_transfer(target);
    back->get_copy(scatter(&into, 1));
    started one{back->launch()};
    net.run_until_idle();
    EXPECT_EQ(one.code(), errc::ok);
    EXPECT_EQ(mine, fresh);
    EXPECT_TRUE(client.core().transfers().is_at_rest())
        << "what a full port refused is not given back";
}

TEST(transfer, what_progress_says_ends_it) {
    struct stopped final : future_transfer {
        using future_transfer::future_transfer;
        failure progressed() noexcept override {
            if (moved() < 2000000) return {};
            return {{errc::handler_failed}, "enough"};
        }
    };
    transfer_pair p;
    auto* const one = new stopped(p.target());
    const mutable_bytes into(p.mine);
    one->get_copy(scatter(&into, 1));
    started later{one->launch()};
    p.net.run_until_idle();
    EXPECT_EQ(later.code(), errc::handler_failed);
    EXPECT_EQ(p.net.open_operations(), 0u);
}

TEST(transfer, ends_with_a_cancel_of_who_waits_for_it) {
    transfer_pair p;
    p.net.delay(1ms);
    mutable_bytes into(p.mine);
    errc seen = errc::ok;
    p.in_client([&] {
        ult waits = spawn(p.client.pool(), [&] {
            waited_transfer get(p.target());
            get.get(scatter(&into, 1));
            seen = error_of([&] { get.run(); }).code().code;
            EXPECT_EQ(get.why.what, errc::canceled);
            EXPECT_EQ(p.client.core().transfers().pending(), 0u);
        });
        this_task::sleep_for(500us);
        waits.cancel();
        waits.join();
    });
    EXPECT_EQ(seen, errc::canceled);
    EXPECT_EQ(p.net.open_operations(), 0u);
}

class transfer_threads : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, transfer_threads, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, transfer_threads, testing::Values("tcp://127.0.0.1:0"));

TEST_P(transfer_threads, plain_threads_and_ults_wait_for_them) {
    engine server{GetParam()}, client{GetParam()};
    std::vector<std::byte> memory = pattern(5 << 20), mine(memory.size());
    mutable_bytes whole(memory), into(mine);
    std::optional<exposure> shown(std::in_place, server.core(), scatter(&whole, 1),
                                  access::read_write);
    const transfer_target target{
        .core = &client.core(), .there = client.lookup(server.address()), .key = shown->key(0)};
    waited_transfer get(target);
    get.get(scatter(&into, 1));
    EXPECT_EQ(get.run().what, errc::ok);
    EXPECT_EQ(mine, memory);
    const auto fresh = pattern(memory.size(), 4);
    client.run([&] {
        const const_bytes from(fresh);
        waited_transfer put(target);
        put.put(gather(&from, 1));
        EXPECT_EQ(put.run().what, errc::ok);
    });
    EXPECT_EQ(memory, fresh);
    shown.reset();
    waited_transfer stale(target);
    stale.get(scatter(&into, 1));
    EXPECT_EQ(stale.run().what, errc::denied);
    EXPECT_NE(stale.why.sentence.find("does not expose"), std::string::npos);
}

TEST_P(transfer_threads, memory_to_ourselves_moves_while_the_stream_would_sleep) {
    engine here{GetParam()};
    std::vector<std::byte> memory = pattern(9 << 20), mine(memory.size());
    mutable_bytes whole(memory), into(mine);
    exposure shown(here.core(), scatter(&whole, 1), access::read);
    waited_transfer get({.core = &here.core(),
                         .there = here.lookup(here.address()),
                         .key = shown.key(peer::self_port)});
    get.get(scatter(&into, 1));
    EXPECT_EQ(get.run().what, errc::ok);
    EXPECT_EQ(mine, memory);
}

TEST(transfer, cost_of_a_record_and_of_an_exposure_is_bounded) {
    EXPECT_LE(sizeof(future_transfer), 1024u);
    EXPECT_LE(sizeof(exposure), 256u);
}

}  // namespace
}  // namespace amalgam::detail
