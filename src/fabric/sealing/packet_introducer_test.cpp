#include "fabric/sealing/packet_introducer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/sealing/introduced_testing.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "memory/memory.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

class packet_introducer_test : public testing::Test {
protected:
    static void meet(introduced_end& caller, introduced_end& called,
                     const std::function<void(packet_bytes_of&)>& changes = {}) {
        caller.connect();
        called.accept();
        ASSERT_TRUE(called.is_accepted);
        caller.room();
        carry(caller, called, changes);
    }
    static void expect_refused(introduced_end& end, errc why) {
        EXPECT_EQ(end.events.downs, std::vector<errc>{why});
        EXPECT_EQ(end.events.rooms, 0);
        EXPECT_EQ(end.below->closes, 1);
        EXPECT_NE(end.here->explain().find(" 1 handshakes refused"), std::string::npos)
            << end.here->explain();
        EXPECT_EQ(end.here->take_secrets(*end.link), nullptr);
    }

    test_lab lab_;
    /// The beginning of a record of TLS that goes on and on.
    const packet_bytes_of endless_ = [] {
        packet_bytes_of part(4000, std::byte{});
        part[0] = std::byte{22};
        part[1] = part[2] = std::byte{3};
        part[3] = std::byte{1};
        return part;
    }();
};

TEST_F(packet_introducer_test, ends_that_trust_each_other_share_keys_and_know_who_is_there) {
    introduced_end caller(lab_.trust, 3), called(lab_.trust, 2);
    meet(caller, called);
    EXPECT_EQ(caller.events.rooms, 1);
    EXPECT_EQ(called.events.rooms, 1);
    const auto here = caller.here->take_secrets(*caller.link);
    const auto there = called.here->take_secrets(*called.link);
    ASSERT_TRUE(here != nullptr && there != nullptr);
    EXPECT_EQ(here->sending, there->receiving);
    EXPECT_EQ(here->receiving, there->sending);
    EXPECT_NE(here->sending, here->receiving);
    EXPECT_EQ(here->who.name, "node");
    EXPECT_EQ(there->who.name, "node");
    EXPECT_EQ(called.here->self(), here->who);
    EXPECT_EQ(here->their_ciphers, 2);
    EXPECT_EQ(there->their_ciphers, 3);
    // What follows is the port's.
    caller.receive(bytes_of("first"));
    EXPECT_EQ(caller.events.packets, std::vector<packet_bytes_of>{bytes_of("first")});
}

TEST_F(packet_introducer_test, packets_that_the_carrier_kept_are_used_again_once_it_returns_them) {
    introduced_end caller(lab_.trust), called(lab_.trust);
    const auto begin = [&] {
        caller.connect();
        caller.below->answer = posted::pending;
        called.accept();
        caller.room();
    };
    begin();
    carry(caller, called);
    EXPECT_EQ(caller.events.rooms, 1);
    const auto lent = caller.below->held;
    ASSERT_FALSE(lent.empty());
    for (packet* each : lent)
        caller.wire().events->returned(*each);
    begin();
    ASSERT_EQ(caller.below->held.size(), 1u);
    packet* const again = caller.below->held.front();
    EXPECT_NE(std::find(lent.begin(), lent.end(), again), lent.end());
    caller.wire().events->returned(*again);
}

TEST_F(packet_introducer_test, ends_with_the_same_pre_shared_key_share_keys_and_others_do_not) {
    const std::string digits(64, '4');
    const auto mine = credentials::from_text({.shared_keys = "node7:" + digits + "\n"});
    introduced_end caller(mine), called(mine);
    meet(caller, called);
    const auto here = caller.here->take_secrets(*caller.link);
    const auto there = called.here->take_secrets(*called.link);
    ASSERT_TRUE(here != nullptr && there != nullptr);
    EXPECT_EQ(here->sending, there->receiving);
    EXPECT_EQ(there->who, (identity{.kind = identity_kind::pre_shared, .name = "node7"}));
    introduced_end stranger(credentials::from_text({.shared_keys = "node8:" + digits + "\n"})),
        refusing(mine);
    meet(stranger, refusing);
    expect_refused(stranger, errc::denied);
    expect_refused(refusing, errc::denied);
}

TEST_F(packet_introducer_test, each_connection_has_keys_of_its_own) {
    introduced_end caller(lab_.trust), called(lab_.trust), again(lab_.trust), other(lab_.trust);
    meet(caller, called);
    meet(again, other);
    EXPECT_NE(caller.here->take_secrets(*caller.link)->sending,
              again.here->take_secrets(*again.link)->sending);
}

// A member of a run between two others, who are trusted as he is, and who keeps what they say.
TEST_F(packet_introducer_test, a_handshake_of_another_that_is_played_again_introduces_nobody) {
    const auto shared =
        credentials::from_text({.shared_keys = "node:" + std::string(64, '4') + "\n"});
    for (const auto& trust : {std::shared_ptr<const credentials>(lab_.trust), shared}) {
        introduced_end caller(trust), called(trust);
        meet(caller, called);
        ASSERT_TRUE(caller.events.rooms == 1 && called.events.rooms == 1);
        introduced_end called_again(trust), caller_again(trust);
        called_again.accept();
        for (const packet_bytes_of& each : caller.below->tried)
            called_again.receive(each);
        caller_again.connect();
        caller_again.room();
        for (const packet_bytes_of& each : called.below->tried)
            caller_again.receive(each);
        for (introduced_end* again : {&called_again, &caller_again}) {
            EXPECT_EQ(again->events.rooms, 0);
            EXPECT_EQ(again->events.downs.size(), 1u);
            EXPECT_EQ(again->below->closes, 1);
            EXPECT_EQ(again->here->take_secrets(*again->link), nullptr);
        }
    }
}

TEST_F(packet_introducer_test, addresses_are_those_below_with_tls) {
    introduced_end caller(lab_.trust), called(lab_.trust);
    EXPECT_EQ(caller.here->canonical("wire+path+tls://there?credentials=me").value(),
              "wire+path+tls://there");
    EXPECT_EQ(caller.here->canonical("wire+path://there").code(), errc::invalid);
    meet(caller, called);
    EXPECT_EQ(caller.wire().dialed, "wire+path://there");
    EXPECT_EQ(called.events.addresses, std::vector<std::string>{"wire+path+tls://caller"});
}

TEST_F(packet_introducer_test, nothing_of_the_ports_is_sent_before_and_nothing_taken) {
    introduced_end caller(lab_.trust);
    caller.connect();
    packet one;
    std::byte byte{};
    one.data = &byte;
    one.bytes = 1;
    EXPECT_EQ(caller.link->send(one), posted::full);
    caller.room();
    EXPECT_EQ(caller.link->send(one), posted::full);
    EXPECT_EQ(caller.events.rooms, 0);
}

TEST_F(packet_introducer_test, one_of_another_authority_is_denied_and_learns_why) {
    const test_lab others;
    introduced_end caller(others.trust), called(lab_.trust);
    meet(caller, called);
    expect_refused(caller, errc::denied);
    EXPECT_EQ(called.events.downs, std::vector<errc>{errc::denied});
    EXPECT_EQ(called.events.rooms, 0);
}

TEST_F(packet_introducer_test, a_change_of_any_packet_ends_it) {
    int packets = 0;
    {
        introduced_end caller(lab_.trust), called(lab_.trust);
        meet(caller, called, [&](packet_bytes_of&) { ++packets; });
    }
    ASSERT_GT(packets, 2);
    for (int changed = 0; changed < packets; ++changed) {
        introduced_end caller(lab_.trust), called(lab_.trust);
        int number = 0;
        meet(caller, called, [&](packet_bytes_of& bytes) {
            if (number++ == changed) bytes[bytes.size() / 2] ^= std::byte{1};
        });
        EXPECT_FALSE(caller.events.rooms > 0 && called.events.rooms > 0) << changed;
        EXPECT_FALSE(caller.events.downs.empty() && called.events.downs.empty()) << changed;
    }
}

TEST_F(packet_introducer_test, garbage_in_place_of_a_handshake_is_refused) {
    for (const std::size_t size : {1u, 100u, 5000u}) {
        introduced_end called(lab_.trust);
        called.accept();
        called.receive(packet_bytes_of(size, std::byte{0x80}));
        if (size > 1) expect_refused(called, errc::unreachable);
    }
}

TEST_F(packet_introducer_test, one_that_is_trusted_and_speaks_another_protocol_is_a_mismatch) {
    for (const bool right : {true, false}) {
        introduced_end called(lab_.trust);
        called.accept();
        int both[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
        const unique_fd inside(both[0]), outside(both[1]);
        tls_contexts contexts(lab_.trust);
        const auto record = std::make_unique<tls_record>();
        tls_session caller(*contexts.connecting().value(), tls_session::side::connecting, both[0],
                           *record);
        const auto carry = [&] {
            packet_bytes_of some(4096);
            while (true) {
                const ssize_t got = ::recv(outside.get(), some.data(), some.size(), 0);
                if (got <= 0) break;
                called.receive({some.begin(), some.begin() + got});
            }
            for (packet_bytes_of& each : std::exchange(called.below->left, {}))
                ASSERT_EQ(::send(outside.get(), each.data(), each.size(), 0),
                          static_cast<ssize_t>(each.size()));
        };
        auto now = tls_session::state::waiting;
        for (int i = 0; i < 20 && now == tls_session::state::waiting; ++i) {
            now = caller.shake_hands();
            carry();
        }
        ASSERT_EQ(now, tls_session::state::complete) << caller.why().sentence;
        std::array<std::byte, 17> greeting{};
        store_le(greeting.data(), std::uint64_t{0x31616573'6c616d41u});
        greeting[8] = std::byte{1};
        greeting[16] = std::byte{2};
        if (!right) greeting[7] ^= std::byte{1};
        ASSERT_TRUE(caller.write_whole(greeting));
        carry();
        EXPECT_EQ(called.events.rooms, right ? 1 : 0);
        if (!right) expect_refused(called, errc::mismatch);
    }
}

TEST_F(packet_introducer_test, a_handshake_that_never_ends_is_bounded) {
    introduced_end called(lab_.trust);
    called.accept();
    for (int i = 0; i < 100 && called.events.downs.empty(); ++i)
        called.receive(endless_);
    expect_refused(called, errc::unreachable);
}

TEST_F(packet_introducer_test, a_peer_that_says_nothing_is_unreachable_when_the_limit_is_over) {
    introduced_end caller(lab_.trust, 2, 0ms), patient(lab_.trust);
    for (introduced_end* each : {&caller, &patient}) {
        each->connect();
        each->room();
        each->here->progress(1);
    }
    expect_refused(caller, errc::unreachable);
    EXPECT_TRUE(patient.events.downs.empty());
}

TEST_F(packet_introducer_test, a_limit_is_looked_at_while_others_keep_the_carrier_busy) {
    introduced_end caller(lab_.trust, 2, 0ms);
    caller.connect();
    caller.room();
    caller.wire().ran = 1;
    for (int i = 0; i < 1000 && caller.events.downs.empty(); ++i)
        caller.here->progress(1);
    expect_refused(caller, errc::unreachable);
}

TEST_F(packet_introducer_test, one_that_is_lost_meanwhile_is_told_once_and_heard_no_more) {
    introduced_end caller(lab_.trust);
    caller.connect();
    caller.room();
    for (int i = 0; i < 2; ++i)
        caller.wire().events->down(*caller.below, {errc::unreachable});
    caller.receive(bytes_of("too late"));
    caller.room();
    EXPECT_EQ(caller.events.downs, std::vector<errc>{errc::unreachable});
    EXPECT_EQ(caller.events.rooms, 0);
    EXPECT_EQ(caller.here->take_secrets(*caller.link), nullptr);
}

TEST_F(packet_introducer_test, a_handshake_that_finds_no_room_goes_on_when_there_is_some) {
    // Packets so short that there are many.
    introduced_end caller(lab_.trust, 2, 1h, 64), called(lab_.trust, 2, 1h, 64);
    caller.connect();
    called.accept();
    std::size_t rounds = 0;
    while (caller.events.rooms == 0 || called.events.rooms == 0) {
        ASSERT_LT(++rounds, 1000u);
        for (introduced_end* each : {&caller, &called}) {
            each->below->answer = rounds % 3 == 0 ? posted::pending : posted::full;
            if (each == &caller || rounds > 1) each->room();
            for (packet* lent : std::exchange(each->below->held, {}))
                each->wire().events->returned(*lent);
        }
        carry(caller, called);
    }
    EXPECT_TRUE(caller.events.downs.empty() && called.events.downs.empty());
}

TEST_F(packet_introducer_test, any_allocation_may_fail_and_ends_no_more_than_the_connection) {
    enum class how { trusted, stranger, endless, silent };
    for (const how peer : {how::trusted, how::stranger, how::endless, how::silent}) {
        bool struck = true;
        const test_lab others;
        for (std::uint64_t n = 1; struck; ++n) {
            introduced_end caller(peer == how::stranger ? others.trust : lab_.trust);
            introduced_end called(lab_.trust, 2, peer == how::silent ? 0ms : 1h);
            caller.connect();
            caller.room();
            std::string from = "wire+path://a caller whose name takes memory";
            {
                const memory::failing next(n);
                called.accept(std::move(from));
                if (called.is_accepted && peer == how::endless)
                    for (int i = 0; i < 20; ++i)
                        called.receive(endless_);
                else if (called.is_accepted && peer == how::silent)
                    called.here->progress(1);
                else if (called.is_accepted)
                    carry(caller, called);
                struck = memory::failing::struck();
            }
            const bool is_open = called.events.rooms == 1;
            EXPECT_TRUE(peer == how::trusted ? is_open || struck : !is_open);
            // Or the caller had none, and left: a wire in the hands of a test does not tell.
            EXPECT_TRUE(!called.is_accepted || called.events.downs.size() == (is_open ? 0u : 1u) ||
                        caller.below->closes == 1)
                << n;
        }
    }
}

TEST_F(packet_introducer_test, one_that_closes_meanwhile_gets_no_more) {
    introduced_end caller(lab_.trust);
    caller.connect();
    caller.room();
    caller.link->close();
    EXPECT_EQ(caller.below->closes, 1);
    caller.receive(bytes_of("too late"));
    EXPECT_TRUE(caller.events.downs.empty());
    caller.here->release(*caller.link);
    EXPECT_EQ(caller.wire().released, 1);
}

}  // namespace
}  // namespace amalgam::detail
