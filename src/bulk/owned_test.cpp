#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/fabric/loop.hpp>

#include "bulk/bulk_testing.hpp"

// Memory owned by descriptors: lives exactly as long as one of them.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A container that reports when it is freed.
class watched {
public:
    using value_type = std::byte;
    watched(std::size_t bytes, int& freed) : bytes_(pattern(bytes)), freed_(&freed) {}
    watched(watched&& other) noexcept
        : bytes_(std::move(other.bytes_)), freed_(std::exchange(other.freed_, nullptr)) {}
    ~watched() {
        if (freed_ != nullptr) ++*freed_;
    }
    std::byte* data() noexcept { return bytes_.data(); }
    const std::byte* data() const noexcept { return bytes_.data(); }
    std::size_t size() const noexcept { return bytes_.size(); }
    auto begin() noexcept { return bytes_.begin(); }
    auto end() noexcept { return bytes_.end(); }
    auto begin() const noexcept { return bytes_.begin(); }
    auto end() const noexcept { return bytes_.end(); }

private:
    std::vector<std::byte> bytes_;
    int* freed_;
};

struct owned : testing::Test {
    loop_network net;
    engine server{net.port("server")};
    std::optional<engine> client{std::in_place, net.port("client")};
    holder there{server};
    int freed = 0;

    bulk made(access rights = access::read) {
        return expose_owned(*client, watched(20000, freed), rights);
    }
    void post(bulk what) {
        client->procedure<void(bulk)>("hold").on(client->lookup("loop://server")).post(what);
    }
};

TEST_F(owned, without_a_message_it_goes_with_the_last_copy) {
    bulk first = made();
    bulk part = first.part(5, 10);
    first = bulk();
    EXPECT_EQ(freed, 0);
    part = bulk();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, one_that_others_hold_too_goes_with_the_last_of_all) {
    auto shared = std::make_shared<watched>(20000, freed);
    post(expose_owned(*client, shared));
    net.run_until_idle();
    std::vector<std::byte> into(20000);
    auto pull = there.held.start_pull(into);
    net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    EXPECT_EQ(into, pattern(20000));
    pull = {};
    there.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 0);
    post(expose_owned(*client, shared, access::read_write));
    net.run_until_idle();
    shared.reset();
    EXPECT_EQ(freed, 0);
    auto push = there.held.start_push(into);
    net.run_until_idle();
    EXPECT_TRUE(push.wait().ok());
    push = {};
    there.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, one_that_is_shared_and_const_can_be_read_only) {
    const auto shared = std::make_shared<const std::vector<int>>(5000, 7);
    post(expose_owned(*client, shared));
    net.run_until_idle();
    std::vector<int> into(5000);
    auto pull = there.held.start_pull(into);
    net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    EXPECT_EQ(into, *shared);
    EXPECT_EQ(error_of([&] { (void)expose_owned(*client, shared, access::read_write); }).code(),
              errc::invalid);
    const std::shared_ptr<std::vector<int>> null;
    EXPECT_EQ(error_of([&] { (void)expose_owned(*client, null); }).code(), errc::invalid);
}

/// A network with small links, so that messages queue at the port or in the engine.
struct lent_slowly : testing::Test {
    loop_network net{{.inline_bytes = 64, .link_bytes = 2048}};
    engine server{net.port("server")};
    engine client{net.port("client")};
    holder there{server};
    int freed = 0;

    future<void> lend() {
        return client.procedure<void(bulk, std::string)>("take")
            .on(client.lookup("loop://server"))
            .start(expose_owned(client, watched(20000, freed)), std::string(200, 'x'));
    }
};

TEST_F(lent_slowly, a_call_that_waited_for_room_still_lends_and_one_that_never_left_does_not) {
    net.delay(1ms);
    bool whole = true;
    int pulled = 0;
    server.define("take", [&](const bulk& what, const std::string&) {
        std::vector<std::byte> into(20000);
        what.pull(into);
        whole = whole && into == pattern(20000);
        ++pulled;
    });
    std::vector<future<void>> calls;
    for (int i = 0; i < 40; ++i)
        calls.push_back(lend());
    for (std::size_t i = 20; i < 40; ++i)
        calls[i].cancel();
    net.run_until_idle();
    int good = 0;
    for (std::size_t i = 0; i < 40; ++i) {
        const errc how = calls[i].wait().code;
        EXPECT_EQ(how, i < 20 ? errc::ok : errc::canceled) << i;
        good += how == errc::ok ? 1 : 0;
    }
    EXPECT_EQ(pulled, good);
    EXPECT_TRUE(whole);
    calls.clear();
    net.run_until_idle();
    EXPECT_EQ(freed, 40);  // Both engines still live: the end of the calls alone released the
                           // memory.
}

TEST_F(owned, one_way_call_carries_it_and_the_far_side_ends_it) {
    post(made());
    net.run_until_idle();
    EXPECT_EQ(freed, 0);
    std::vector<std::byte> into(20000);
    auto pull = there.held.start_pull(into);
    there.held = bulk();  // The transfer still holds it.
    net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    EXPECT_EQ(into, pattern(20000));
    EXPECT_EQ(freed, 0) << "the future still names it";
    pull = {};
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, handler_that_does_not_keep_it_lets_it_go) {
    server.define("look", [](bulk what) { return what.bytes(); });
    auto call = client->procedure<std::uint64_t(bulk)>("look")
                    .on(client->lookup("loop://server"))
                    .start(made());
    net.run_until_idle();
    EXPECT_EQ(call.get(), 20000u);
    EXPECT_EQ(freed, 1);
    auto nobody =
        client->procedure<void(bulk)>("nobody").on(client->lookup("loop://server")).start(made());
    net.run_until_idle();
    EXPECT_EQ(nobody.wait(), errc::not_found);
    nobody = {};
    net.run_until_idle();
    EXPECT_EQ(freed, 2);
}

TEST_F(owned, result_of_a_handler_lives_until_the_caller_is_done) {
    client->define("make", [&] { return made(access::read_write); });
    auto call = server.procedure<bulk()>("make").on("loop://client").start();
    net.run_until_idle();
    bulk got = call.get();
    call = {};
    EXPECT_EQ(freed, 0);
    std::vector<std::byte> into(20000);
    auto pull = got.start_pull(into);
    net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    pull = {};
    got = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, loss_of_who_holds_it_ends_it) {
    post(made());
    net.run_until_idle();
    net.kill("server");
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, end_of_the_lender_ends_it) {
    post(made());
    net.run_until_idle();
    client.reset();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
    std::vector<std::byte> into(20000);
    auto pull = there.held.start_pull(into);
    net.run_until_idle();
    EXPECT_FALSE(pull.wait().ok());
}

TEST_F(owned, passed_on_it_stays_until_the_last_in_the_chain_lets_go) {
    engine third{net.port("third")};
    holder at_third(third);
    post(made());
    net.run_until_idle();
    server.procedure<void(bulk)>("hold").on("loop://third").post(there.held);
    there.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 0);
    std::vector<std::byte> into(20000);
    auto pull = at_third.held.start_pull(into);
    net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    pull = {};
    at_third.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, sent_home_again_it_is_still_one_loan_each_way) {
    holder at_client(*client);
    post(made());
    net.run_until_idle();
    server.procedure<void(bulk)>("hold").on("loop://client").post(there.held);
    there.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 0);
    EXPECT_TRUE(at_client.held.from().is_self());
    at_client.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, call_to_ourselves_holds_it_likewise) {
    holder mine(*client);
    client->procedure<void(bulk)>("hold").on("loop://client").post(made());
    net.run_until_idle();
    EXPECT_EQ(freed, 0);
    mine.held = bulk();
    net.run_until_idle();
    EXPECT_EQ(freed, 1);
}

TEST_F(owned, whatever_operation_fails_it_is_freed_once_both_sides_are_done) {
    for (std::uint64_t n = 1; n < 12; ++n) {
        loop_network lines;
        engine there_too{lines.port("server")}, here{lines.port("client")};
        holder keeps(there_too);
        int gone = 0;
        lines.fail_operation(n);
        try {
            here.procedure<void(bulk)>("hold")
                .on(here.lookup("loop://server"))
                .post(expose_owned(here, watched(20000, gone)));
        } catch (const error&) {
        }
        lines.run_until_idle();
        std::vector<std::byte> into(static_cast<std::size_t>(keeps.held.bytes()));
        (void)keeps.held.start_pull(into).ready();
        lines.run_until_idle();
        keeps.held = bulk();
        lines.run_until_idle();
        EXPECT_EQ(gone, 1) << n;
    }
}

TEST_F(owned, archive_that_is_no_message_refuses_it) {
    body bytes;
    archive_writer writer(bytes);
    const bulk mine = made();
    EXPECT_EQ(error_of([&] { writer(mine); }).code(), errc::unsupported);
}

class owned_on : public testing::TestWithParam<const char*> {};
TEST(owned_behind_a_proxy, is_refused_with_a_sentence_and_freed) {
    int freed = 0;
    engine owner{"tcp://127.0.0.1:0"}, proxy{"tcp://127.0.0.1:0"}, client{"tcp://"};
    const peer there = proxy.lookup(owner.address());
    owner.define("give",
                 [&](std::size_t bytes) { return expose_owned(owner, watched(bytes, freed)); });
    proxy.define_any([&](const raw_call& call) { return call.forward(there); });
    const auto give = client.procedure<bulk(std::size_t)>("give").on(proxy.address());
    EXPECT_EQ(give(100).pull_all().size(), 100u) << "short ones carry their bytes";
    const error why = error_of([&] { give(100'000); });
    EXPECT_EQ(why.handler_code(), errc::unsupported) << why.what();
    EXPECT_NE(std::string(why.what()).find("cannot pass through a call without types"),
              std::string::npos)
        << why.what();
    owner.stop();
    EXPECT_EQ(freed, 2);
}

INSTANTIATE_TEST_SUITE_P(shm, owned_on, testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, owned_on, testing::Values("tcp://127.0.0.1:0"));

TEST_P(owned_on, pooled_buffers_come_back_from_the_far_side) {
    engine server{GetParam()}, client{GetParam()};
    bulk_cache cache(client, {.max_bytes = 1 << 20});
    server.define("sum", [](bulk what) {
        std::uint64_t sum = 0;
        for (const std::byte each : what.pull_all())
            sum += static_cast<std::uint64_t>(each);
        return sum;
    });
    auto sum = client.procedure<std::uint64_t(bulk)>("sum").on(client.lookup(server.address()));
    for (int i = 0; i < 50; ++i) {
        // Sixteen fit: without releases the cache would soon be empty.
        bulk_buffer mine;
        while (!(mine = cache.try_take(60000)))
            this_task::yield();
        std::fill(mine.begin(), mine.end(), std::byte{1});
        EXPECT_EQ(sum(expose_owned(client, std::move(mine))), 60000u);
    }
    EXPECT_GT(cache.counts().reused, 30u);
}

}  // namespace
}  // namespace amalgam
