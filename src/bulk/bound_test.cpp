// To whom descriptors are given, and who may use them: over tcp+tls whom they were sent to. Of two
// users over shm: tests/processes/two_users_test.cpp.
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/bulk/remote_copy.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/temporary_key.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

/// Three who trust each other, and one who has memory.
class bound : public testing::Test {
protected:
    /// A process that holds the last descriptor it was sent, and gives it on request.
    struct user {
        user(endpoints where, const engine_options& how) : on(std::move(where), how) {
            on.define("hold", [this](bulk what) { held = std::move(what); });
            on.define("give", [this] { return held; });
            on.define("sum", [](const std::vector<int>& all) {
                return std::accumulate(all.begin(), all.end(), 0);
            });
        }
        ~user() { held = {}; }
        void send(user& to, const bulk& what) {
            on.procedure<void(bulk)>("hold").on(on.lookup(to.on.address()))(what);
        }
        engine on;
        bulk held;
    };

    engine_options with(const temporary_key& own) {
        return {.ports = {.trust = own.trusting({owner_key.fingerprint(), alice_key.fingerprint(),
                                                 bob_key.fingerprint()})}};
    }
    static errc pull(const bulk& from) {
        std::vector<int> into(from.bytes() / sizeof(int));
        return from.try_pull(into).code().code;
    }
    static errc push(const bulk& to) {
        const std::vector<int> from(to.bytes() / sizeof(int), 7);
        return to.try_push(from).code().code;
    }

    const temporary_key owner_key{"owner"}, alice_key{"alice"}, bob_key{"bob"};
    user owner{"tcp+tls://127.0.0.1:0", with(owner_key)};
    user alice{"tcp+tls://127.0.0.1:0", with(alice_key)};
    user bob{"tcp+tls://127.0.0.1:0", with(bob_key)};
    std::vector<int> memory = std::vector<int>(100'000, 1);
};

TEST_F(bound, what_was_sent_to_one_peer_is_denied_to_the_next) {
    const exposed shown = expose(owner.on, memory, access::read_write);
    // The first call is written before there is a connection, the second one after.
    for (int call = 0; call < 2; ++call) {
        owner.send(alice, shown);
        alice.send(bob, alice.held);
        EXPECT_EQ(pull(bob.held), errc::denied);
        EXPECT_EQ(push(bob.held), errc::denied);
        EXPECT_EQ(pull(alice.held), errc::ok);
        EXPECT_EQ(push(alice.held), errc::ok);
    }
    EXPECT_EQ(memory, std::vector<int>(100'000, 7));
    owner.send(bob, shown);
    EXPECT_EQ(pull(bob.held), errc::ok) << "he has one of his own now";
}

TEST_F(bound, is_so_over_libraries_that_packets_are_sealed_for) {
    for (const char* uri : {"ofi+tcp+tls://127.0.0.1:0", "ucx+tcp+tls://127.0.0.1:0"}) {
        std::optional<user> first, second, third;
        try {
            first.emplace(uri, with(owner_key));
            second.emplace(uri, with(alice_key));
            third.emplace(uri, with(bob_key));
        } catch (const error& why) {
            EXPECT_NE(why.code(), errc::invalid) << why.what();
            continue;  // The library is not installed.
        }
        const exposed shown = expose(first->on, memory, access::read_write);
        for (int call = 0; call < 2; ++call) {
            first->send(*second, shown);
            second->send(*third, second->held);
            EXPECT_EQ(pull(third->held), errc::denied) << uri;
            EXPECT_EQ(pull(second->held), errc::ok) << uri;
            EXPECT_EQ(push(second->held), errc::ok) << uri;
        }
    }
}

TEST_F(bound, who_has_the_same_key_is_the_same_peer) {
    const exposed shown = expose(owner.on, memory, access::read);
    owner.send(alice, shown);  // From now on it is known who she is.
    owner.send(alice, shown);
    user again{"tcp+tls://127.0.0.1:0", with(alice_key)};
    alice.send(again, alice.held);
    EXPECT_EQ(pull(again.held), errc::ok) << "over a connection of its own";
}

TEST_F(bound, with_a_pre_shared_key_it_is_for_the_connection_that_it_was_sent_over) {
    const auto key = credentials::from_text({.shared_keys = "all:" + std::string(64, '4') + "\n"});
    for (const char* uri : {"tcp+tls://127.0.0.1:0", "ofi+tcp+tls://127.0.0.1:0"}) {
        std::optional<user> first, second, third;
        try {
            first.emplace(uri, engine_options{.ports = {.trust = key}});
            second.emplace(uri, engine_options{.ports = {.trust = key}});
            third.emplace(uri, engine_options{.ports = {.trust = key}});
        } catch (const error& why) {
            EXPECT_NE(why.code(), errc::invalid) << why.what();
            continue;  // The library is not installed.
        }
        const exposed shown = expose(first->on, memory, access::read_write);
        for (int call = 0; call < 2; ++call) {
            first->send(*second, shown);
            second->send(*third, second->held);
            EXPECT_EQ(pull(third->held), errc::denied) << uri << ": all have the name of the key";
            EXPECT_EQ(pull(second->held), errc::ok) << uri;
            EXPECT_EQ(push(second->held), errc::ok) << uri;
        }
        const std::vector<int> large(1'000'000, 1);
        const auto sum = first->on.procedure<int(std::vector<int>)>("sum");
        EXPECT_EQ(sum.on(first->on.lookup(second->on.address()))(large), 1'000'000) << uri;
    }
}

TEST_F(bound, what_is_shareable_works_for_whoever_has_it) {
    bulk_cache cache(owner.on, {.shareable = true});
    const bulk_buffer buffer = cache.take(100'000);
    const exposed shown = expose(owner.on, memory, access::read, {.shareable = true});
    auto shared = std::make_shared<std::vector<int>>(memory);
    for (const bulk& each :
         {shown.descriptor(), buffer.descriptor(),
          expose_owned(owner.on, std::vector<int>(memory), access::read, {.shareable = true}),
          expose_owned(owner.on, shared, access::read, {.shareable = true})}) {
        owner.send(alice, each);
        alice.send(bob, alice.held);
        EXPECT_EQ(pull(bob.held), errc::ok);
    }
}

TEST_F(bound, memory_that_a_descriptor_owns_and_that_of_caches_is_for_one_peer_too) {
    bulk_cache cache(owner.on);
    const bulk_buffer buffer = cache.take(100'000);
    for (const bulk& each :
         {buffer.descriptor(), expose_owned(owner.on, std::vector<int>(memory))}) {
        owner.send(alice, each);
        alice.send(bob, alice.held);
        EXPECT_EQ(pull(alice.held), errc::ok);
        EXPECT_EQ(pull(bob.held), errc::denied);
    }
}

TEST_F(bound, what_comes_home_may_be_sent_to_others) {
    const exposed shown = expose(owner.on, memory, access::read);
    owner.send(alice, shown);
    const bulk back = owner.on.procedure<bulk()>("give").on(owner.on.lookup(alice.on.address()))();
    EXPECT_EQ(pull(back), errc::ok) << "at home";
    owner.send(bob, back);
    EXPECT_EQ(pull(bob.held), errc::ok);
    owner.send(owner, shown);
    owner.send(bob, owner.held);
    EXPECT_EQ(pull(bob.held), errc::ok) << "by way of the owner itself";
    bob.send(alice, bob.held);
    EXPECT_EQ(pull(alice.held), errc::denied);
}

TEST_F(bound, whoever_proves_nothing_may_pass_on_as_it_likes_but_not_to_where_keys_are_bound) {
    user local{{"shm://", "tcp+tls://127.0.0.1:0"}, with(owner_key)};
    user neighbor{{"shm://", "tcp+tls://127.0.0.1:0"}, with(alice_key)};
    user other{"shm://", {}};
    const exposed shown = expose(local.on, memory, access::read);
    local.send(neighbor, shown);  // Over shared memory, which is first.
    EXPECT_EQ(pull(neighbor.held), errc::ok);
    neighbor.send(other, neighbor.held);
    EXPECT_EQ(pull(other.held), errc::ok);
    neighbor.on.procedure<void(bulk)>("hold").on(neighbor.on.lookup(bob.on.address()))(
        neighbor.held);
    EXPECT_EQ(pull(bob.held), errc::denied);
}

TEST_F(bound, in_shared_memory_for_several_users_the_owners_user_does_as_anywhere) {
    user local{{"shm://?users=any", "tcp://127.0.0.1:0"}, {}};
    user neighbor{{"shm://?users=any", "tcp://127.0.0.1:0"}, {}};
    user other{"shm://", {}};
    const exposed shown = expose(local.on, memory, access::read_write);
    const auto hold = local.on.procedure<void(bulk)>("hold");
    for (const std::string& way : neighbor.on.addresses()) {
        hold.on(local.on.lookup(way))(shown);
        EXPECT_EQ(pull(neighbor.held), errc::ok) << way;
        neighbor.send(other, neighbor.held);  // Who knows the owner by shared memory only.
        EXPECT_EQ(pull(other.held), errc::ok) << way;
        EXPECT_EQ(push(other.held), errc::ok) << way;
    }
    EXPECT_EQ(memory, std::vector<int>(100'000, 7));
}

TEST_F(bound, copies_between_two_others_pass_through_here) {
    const copy_service of_alice(alice.on), of_bob(bob.on);
    std::vector<int> from(100'000, 3), into(100'000, 0);
    const exposed source = expose(alice.on, from, access::read);
    const exposed target = expose(bob.on, into, access::read_write);
    alice.send(owner, source);
    const bulk far_source = owner.held;
    bob.send(owner, target);
    const bulk far_target = owner.held;
    EXPECT_EQ(copy(owner.on, far_source, far_target), copied_by::here);
    EXPECT_EQ(into, from);
    const exposed shared = expose(alice.on, from, access::read, {.shareable = true});
    alice.send(owner, shared);
    EXPECT_EQ(copy(owner.on, owner.held, far_target), copied_by::target);
}

TEST_F(bound, large_values_are_fetched_by_whom_they_are_for) {
    const auto sum =
        alice.on.procedure<int(std::vector<int>)>("sum").on(alice.on.lookup(owner.on.address()));
    const std::vector<int> large(2'000'000, 1);
    for (int call = 0; call < 2; ++call)
        EXPECT_EQ(sum(large), 2'000'000);
}

/// Two engines that each have two ports, and know each other by both.
class bound_by_two_ways : public bound,
                          public testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(bound_by_two_ways, a_striped_transfer_moves_whatever_way_the_descriptor_came) {
    user one{GetParam(), with(owner_key)}, other{GetParam(), with(alice_key)};
    const peer to_one = other.on.lookup(one.on.addresses());
    std::vector<int> large(3'000'000, 1), into(large.size());
    const exposed shown = expose(one.on, large, access::read_write);
    one.held = shown;
    const bulk got = other.on.procedure<bulk()>("give").on(to_one)();
    const auto pulled = got.try_pull(into, {.striped = true});
    EXPECT_TRUE(pulled.ok()) << pulled.sentence();
    EXPECT_TRUE(into == large);
    std::fill(into.begin(), into.end(), 2);
    EXPECT_TRUE(got.try_push(into, {.striped = true}).ok());
    EXPECT_TRUE(large == into);
    EXPECT_EQ(other.on.procedure<bulk()>("give").on(to_one)().bytes(), 12'000'000u)
        << "the ways are still there";
}

INSTANTIATE_TEST_SUITE_P(
    , bound_by_two_ways,
    testing::Values(std::vector<std::string>{"tcp+tls://127.0.0.1:0", "tcp+tls://127.0.0.1:0"},
                    std::vector<std::string>{"shm://", "tcp+tls://127.0.0.1:0"},
                    std::vector<std::string>{"tcp://127.0.0.1:0", "tcp+tls://127.0.0.1:0"}));

}  // namespace
}  // namespace amalgam
