#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/extension/origin.hpp>

#include "bulk/bulk_testing.hpp"
#include "emulated.hpp"
#include "fabric/memory/truncated_file.hpp"
#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

// Failures of bulks, and their heap allocations.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A server that holds a descriptor of the client's, in virtual time.
struct in_virtual_time {
    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client")};
    holder there{server};
    std::vector<std::byte> memory = pattern(3 << 20);
    std::vector<std::byte> mine = std::vector<std::byte>(memory.size());
    exposed shown = expose(client, memory, access::read_write);

    in_virtual_time() {
        auto sent =
            client.procedure<void(bulk)>("hold").on(client.lookup(server.address())).start(shown);
        net.run_until_idle();
        sent.get();
    }
    const bulk& far() const { return there.held; }
};

TEST(bulk_failures, memory_that_cannot_be_accessed_is_said_to_be_here_or_at_the_peer) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    for (const char* uri : {"shm://", "tcp://127.0.0.1:0"}) {
        SCOPED_TRACE(uri);
        engine server(one_more(uri)), client(one_more(uri));
        holder there(server);
        std::vector<std::byte> memory = pattern(1 << 20);
        detail::truncated_file fixed(memory.size(), PROT_READ);
        const auto hold = client.procedure<void(bulk)>("hold").on(server.address());
        const exposed good = expose(client, memory, access::read_write);
        const auto held = [&] { return server.run([&] { return there.held; }); };
        hold(good);
        const bulk of_good = held();
        const error here = error_of([&] { of_good.pull(fixed.bytes()); });
        EXPECT_EQ(here.code(), errc::invalid);
        EXPECT_TRUE(std::string(here.what()).find("the local memory") != std::string::npos)
            << here.what();
        const exposed bad = expose(client, fixed.bytes(), access::read_write);
        hold(bad);
        const bulk of_bad = held();
        const error at_peer = error_of([&] { of_bad.push(memory); });
        EXPECT_EQ(at_peer.code(), errc::invalid);
        EXPECT_TRUE(std::string(at_peer.what()).find("the peer's memory") != std::string::npos)
            << at_peer.what();
    }
}

/// Runs in a child process, which the fault ends.
template <typename Touch>
void expect_fault(Touch touch) {
    EXPECT_EXIT(
        {
            const rlimit no_dump{};
            ::setrlimit(RLIMIT_CORE, &no_dump);
            touch();
        },
        testing::KilledBySignal(SIGBUS), "");
}

TEST(bulk_failures, memory_that_went_away_faults_where_no_transport_takes_its_bytes) {
    if (detail::sanitized) GTEST_SKIP() << "sanitizers take the signal";
    expect_fault([] {
        engine here("shm://");
        detail::truncated_file file(1 << 16);
        const exposed shown = expose(here, file.bytes(), access::read);
        file.truncate(0);
        std::vector<std::byte> into(1 << 16);
        shown.descriptor().pull(into);
    });
    expect_fault([] {
        engine server("shm://"), client("shm://");
        holder there(server);
        detail::truncated_file file(1 << 16);
        const exposed shown = expose(client, file.bytes().first(1024), access::read);
        file.truncate(0);
        client.procedure<void(bulk)>("hold").on(server.address())(shown);
    });
}

TEST(bulk_failures, on_progress_may_throw_anything) {
    in_virtual_time t;
    const std::function<void(std::uint64_t)> all[] = {
        [](std::uint64_t) { throw error(errc::denied, "enough"); },
        [](std::uint64_t) { throw std::bad_alloc(); }, [](std::uint64_t) { throw 7; }};
    for (const auto& each : all) {
        auto pull = t.far().start_pull(t.mine, {.on_progress = each});
        auto push = t.far().start_push(t.mine, {.on_progress = each});
        t.net.run_until_idle();
        EXPECT_EQ(pull.wait(), errc::handler_failed);
        EXPECT_EQ(push.wait(), errc::handler_failed);
        auto good = t.far().start_pull(t.mine);
        t.net.run_until_idle();
        EXPECT_TRUE(good.wait().ok());
    }
}

TEST(bulk_failures, loss_of_the_origin_ends_transfers_and_descriptors_for_good) {
    in_virtual_time t;
    t.net.delay(1ms);
    auto pull = t.far().start_pull(t.mine);
    auto push = t.far().start_push(t.mine);
    t.net.run_for(3ms);
    t.net.kill("client");
    t.net.run_until_idle();
    EXPECT_EQ(pull.wait(), errc::disconnected);
    EXPECT_EQ(push.wait(), errc::disconnected);
    auto late = t.far().start_pull(t.mine);
    t.net.run_until_idle();
    EXPECT_EQ(late.wait(), errc::unreachable);
    EXPECT_EQ(t.net.open_operations(), 0u);
}

TEST(bulk_failures, descriptor_of_an_earlier_run_is_denied_by_the_next_at_its_address) {
    in_virtual_time t;
    engine third{t.net.port("third")};
    holder at_third(third);
    auto sent = t.server.procedure<void(bulk)>("hold").on("loop://third").start(t.far());
    t.net.run_until_idle();
    sent.get();
    t.net.kill("client");
    t.net.run_until_idle();
    engine again{t.net.restart("client")};
    auto pull = at_third.held.start_pull(t.mine);
    t.net.run_until_idle();
    EXPECT_EQ(pull.wait(), errc::denied);
}

TEST(bulk_failures, a_descriptor_whose_owner_was_started_again_is_denied) {
    in_virtual_time t;
    t.net.kill("client");
    t.net.run_until_idle();
    engine again{t.net.restart("client")};
    for (int i = 0; i < 2; ++i) {
        auto pull = t.far().start_pull(t.mine);
        auto push = t.far().start_push(t.mine);
        t.net.run_until_idle();
        EXPECT_EQ(pull.wait(), errc::denied);
        EXPECT_EQ(push.wait(), errc::denied);
    }
}

TEST(bulk_failures, a_descriptor_whose_connection_was_lost_reaches_its_owner_by_a_new_one) {
    in_virtual_time t;
    t.net.cut("client");
    t.net.run_until_idle();
    t.net.heal("client");
    auto pull = t.far().start_pull(t.mine);
    t.net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    EXPECT_EQ(t.mine, t.memory);
}

TEST(bulk_failures, local_is_empty_for_a_descriptor_that_came_back) {
    in_virtual_time t;
    holder at_home(t.client);
    auto sent = t.server.procedure<void(bulk)>("hold").on("loop://client").start(t.far());
    t.net.run_until_idle();
    sent.get();
    EXPECT_EQ(t.shown.descriptor().local().data(), t.memory.data());
    EXPECT_TRUE(at_home.held.local().empty());
    auto pull = at_home.held.start_pull(t.mine);
    t.net.run_until_idle();
    EXPECT_TRUE(pull.wait().ok());
    EXPECT_EQ(t.mine, t.memory);
    t.shown.close();
    auto late = at_home.held.start_pull(t.mine);
    t.net.run_until_idle();
    EXPECT_EQ(late.wait(), errc::denied);
}

TEST(bulk_failures, deadline_and_cancel_end_it_in_time) {
    in_virtual_time t;
    t.net.delay(1ms);
    const auto start = t.net.now();
    auto late = t.far().start_pull(t.mine, {.within = 1500us});
    auto canceled = t.far().start_push(t.mine);
    t.net.run_for(1700us);
    EXPECT_TRUE(late.ready());
    EXPECT_EQ(late.wait(), errc::timed_out);
    canceled.cancel();
    EXPECT_FALSE(canceled.ready()) << "its bytes are still on their way";
    t.net.run_until_idle();
    EXPECT_EQ(canceled.wait(), errc::canceled);
    EXPECT_EQ(t.net.open_operations(), 0u);
    EXPECT_GE(t.net.now() - start, 1700us);
}

TEST(bulk_failures, handler_pulls_within_the_deadline_of_its_call) {
    in_virtual_time t;
    status ended;
    t.server.define("slow", [&](bulk what) { ended = what.try_pull(t.mine).code(); });
    t.net.delay(1ms);
    auto call = t.client.procedure<void(bulk)>("slow")
                    .on(t.client.lookup("loop://server"))
                    .within(2500us)
                    .start(t.shown);
    t.net.run_until_idle();
    EXPECT_EQ(call.wait(), errc::timed_out);
    EXPECT_EQ(ended, errc::timed_out);
}

TEST(bulk_failures, canceled_ult_goes_on_only_when_the_bytes_are_its_own) {
    in_virtual_time t;
    t.net.delay(1ms);
    errc ended = errc::ok;
    bool touched_after = false;
    ult puller = spawn(t.server.stream(), [&] {
        std::vector<std::byte> into(t.memory.size());
        try {
            t.far().pull(into);
        } catch (const error& why) {
            ended = why.code().code;
            touched_after = t.net.open_operations() != 0;
        }
    });
    t.net.run_for(1500us);
    puller.cancel();
    t.net.run_until_idle();
    EXPECT_EQ(ended, errc::canceled);
    EXPECT_FALSE(touched_after);
}

TEST(bulk_failures, end_of_either_engine_ends_it) {
    in_virtual_time t;
    t.net.delay(1ms);
    auto pull = t.far().start_pull(t.mine);
    t.net.run_for(1500us);
    t.server.stop();
    EXPECT_EQ(pull.wait(), errc::closed);
    EXPECT_EQ(t.far().start_pull(t.mine).wait(), errc::closed);
    t.client.stop();
    EXPECT_EQ(t.shown.descriptor().start_pull(t.mine).wait(), errc::closed);
    EXPECT_EQ(error_of([&] { const auto late = expose(t.client, t.memory, access::read); }).code(),
              errc::closed);
}

TEST(bulk_failures, descriptors_and_what_is_exposed_may_outlive_their_engines) {
    std::vector<std::byte> memory = pattern(5000), into(5000);
    exposed left;
    bulk held;
    {
        loop_network net;
        engine server{net.port("server")}, client{net.port("client")};
        holder there(server);
        left = expose(client, memory, access::read);
        auto sent = client.procedure<void(bulk)>("hold").on("loop://server").start(left);
        net.run_until_idle();
        sent.get();
        held = there.held;
    }
    EXPECT_EQ(held.start_pull(into).wait(), errc::closed);
    EXPECT_EQ(left.descriptor().start_pull(into).wait(), errc::closed);
    left.close();
}

TEST(bulk_failures, blocking_where_time_stands_still_is_refused) {
    in_virtual_time t;
    EXPECT_EQ(error_of([&] { t.far().pull(t.mine); }).code(), errc::invalid);
    EXPECT_EQ(t.far().try_push(t.mine).code(), errc::invalid);
}

TEST(bulk_failures, whatever_operation_fails_each_transfer_ends_once) {
    for (std::uint64_t n = 1;; ++n) {
        in_virtual_time t;
        const std::uint64_t before = t.net.operations();
        t.net.fail_operation(n);
        auto pull = t.far().start_pull(t.mine);
        t.net.run_until_idle();
        ASSERT_TRUE(pull.ready());
        if (pull.wait().ok()) {
            ASSERT_EQ(t.mine, t.memory);
        } else {
            EXPECT_EQ(pull.wait(), errc::disconnected);
        }
        EXPECT_EQ(t.net.open_operations(), 0u);
        if (t.net.operations() - before < n) break;
    }
}

TEST(bulk_failures, descriptor_without_an_engine_says_how_to_send_it) {
    in_virtual_time t;
    body bytes;
    archive_writer writer(bytes);
    writer(t.shown.descriptor());
    archive_reader reader(bytes.bytes());
    bulk got;
    reader(got);
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(got.bytes(), t.memory.size());
    const error why = error_of([&] { got.start_pull(t.mine).get(); });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_NE(std::string(why.what()).find("argument or result"), std::string::npos);
}

TEST(bulk_failures, forged_descriptors_touch_nothing) {
    in_virtual_time t;
    body bytes;
    const detail::origin out{&t.client.core(), t.client.lookup(t.server.address())};
    archive_writer(bytes, encoding::native, &out)(t.shown.descriptor());
    const detail::origin in{&t.server.core(), t.server.lookup(t.client.address())};
    // Rights, length, and each byte of the key: see docs/wire/bulk.md.
    std::vector<std::size_t> places{1};
    for (std::size_t at = 24; at < 32; ++at)
        places.push_back(at);
    for (std::size_t at = 56; at < 80; ++at)
        places.push_back(at);
    for (const std::size_t at : places) {
        std::vector<std::byte> forged(bytes.bytes().begin(), bytes.bytes().end());
        forged[at] ^= std::byte{1};
        archive_reader reader(forged, encoding::native, &in);
        bulk got;
        reader(got);
        if (!reader.ok()) continue;
        std::vector<std::byte> into(100, std::byte{0});
        auto push = got.start_push(into);
        t.net.run_until_idle();
        EXPECT_EQ(push.wait(), errc::denied) << at;
    }
    EXPECT_EQ(t.memory, pattern(t.memory.size()));
}

TEST(bulk_failures, a_descriptor_past_a_bound_is_refused_and_one_at_it_is_taken) {
    using detail::bulk_image;
    const auto refusal = [](auto change) -> std::string {
        detail::received_bulk image;
        image.kind = detail::bulk_kind::elsewhere;
        image.rights = access::read_write;
        image.home.bytes = 1000;
        image.bytes = 900;
        image.offset = 100;
        image.direct = 0;
        image.own_ways.push_back({{}, std::string(bulk_image::max_address_bytes, 'a')});
        change(image);
        bulk got;
        const char* wrong = bulk::receive(image, nullptr, got);
        EXPECT_EQ(got.bytes(), wrong == nullptr ? 900u : 0u);
        return wrong == nullptr ? "" : wrong;
    };
    EXPECT_EQ(refusal([](detail::received_bulk&) {}), "");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.own_ways[0].address += 'a'; }),
              "a bulk descriptor's address is too long");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.own_ways.resize(2); }), "");
    EXPECT_EQ(refusal([](detail::received_bulk& image) {
                  image.own_ways.push_back({{}, std::string(5000, 'a')});
              }),
              "a bulk descriptor's address is too long");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.direct = 1; }),
              "a bulk descriptor's direct path is not in its list of paths");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.direct = bulk_image::no_way; }), "");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { ++image.bytes; }),
              "a bulk descriptor's range exceeds its memory");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.offset = ~std::uint64_t{0}; }),
              "a bulk descriptor's range exceeds its memory");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.rights = access{7}; }),
              "a bulk descriptor has invalid access rights");
    EXPECT_EQ(refusal([](detail::received_bulk& image) { image.kind = detail::bulk_kind{0x14}; }),
              "a bulk descriptor is of an unknown kind");
}

/// Whether `work()` succeeds although this thread's allocation number `n` fails.
template <typename Work>
bool survives(std::size_t n, Work work) {
    try {
        const memory::failing failing(n);
        work();
        return !memory::failing::struck();
    } catch (const std::bad_alloc&) {
        return false;
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::no_memory) << why.what();
        return false;
    }
}

/// A server that holds a descriptor of the client's.
struct two_engines {
    explicit two_engines(const std::string& uri) : server{uri}, client{uri} {
        client.procedure<void(bulk)>("hold").on(client.lookup(server.address()))(shown);
    }
    engine server, client;
    holder there{server};
    std::vector<std::byte> memory = pattern(300000), mine = std::vector<std::byte>(memory.size());
    exposed shown = expose(client, memory, access::read_write);
};

class bulk_allocations : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, bulk_allocations,
                         testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, bulk_allocations, testing::Values("tcp://127.0.0.1:0"));

TEST_P(bulk_allocations, whatever_allocation_fails_nothing_is_lost_but_the_operation) {
    two_engines t(GetParam());
    const bulk& far = t.there.held;
    const auto all = [&] {
        const std::vector<mutable_bytes> list{std::span(t.mine).first(100),
                                              std::span(t.mine).subspan(500)};
        const exposed own = expose(t.server, list, access::read);
        std::vector<std::byte> into(5000);
        own.descriptor().pull(into);
        far.pull(list);
        far.push(list);
        body bytes;
        archive_writer writer(bytes);
        writer(own.descriptor());
        archive_reader reader(bytes.bytes());
        bulk got;
        reader(got);
        bulk_cache cache(t.server);
        const bulk pooled = expose_owned(t.server, cache.take(9000));
        const bulk vector = expose_owned(t.server, std::vector<char>(5000));
    };
    // From another thread, and on the stream, where the stream's own work may fail, too.
    std::size_t n = 1;
    while (!survives(n, all))
        ASSERT_LT(++n, 1000u);
    EXPECT_GT(n, 20u);
    n = 1;
    while (!t.server.run([&] { return survives(n, all); }))
        ASSERT_LT(++n, 1000u);
    EXPECT_GT(n, 30u);
    EXPECT_EQ(far.pull_all(), t.memory);
}

TEST_P(bulk_allocations, what_does_not_throw_says_that_there_was_no_memory) {
    two_engines t(GetParam());
    const std::vector<mutable_bytes> list{std::span(t.mine).first(100),
                                          std::span(t.mine).subspan(500)};
    const std::vector<const_bytes> same(list.begin(), list.end());
    bool pulls = true;
    for (std::size_t n = 1; n < 1000;) {
        result<void> how;
        bool struck = false;
        {
            const memory::failing failing(n);
            how = pulls ? t.there.held.try_pull(list) : t.there.held.try_push(same);
            struck = memory::failing::struck();
        }
        EXPECT_TRUE(how.ok() || how.code() == errc::no_memory) << name(how.code().code);
        if (struck) {
            ++n;
        } else if (std::exchange(pulls, false)) {
            n = 1;
        } else {
            break;
        }
    }
}

TEST(bulk_failures, whatever_allocation_fails_a_transfer_by_several_ways_can_be_canceled) {
    engine server{{"tcp://127.0.0.1:0", "tcp://127.0.0.1:0"}}, client{{"tcp://", "tcp://"}};
    std::vector<std::byte> memory = pattern(300000), mine(memory.size());
    const exposed shown = expose(server, memory, access::read_write);
    server.define("memory", [&] { return bulk(shown); });
    const bulk far = client.procedure<bulk()>("memory").on(client.lookup(server.addresses()))();
    const auto cancel_one = [&] {
        auto later = far.start_pull(mine, {.chunk_bytes = 10000, .striped = true});
        later.cancel();
        EXPECT_TRUE(later.ready());
    };
    std::size_t n = 1;
    while (!client.run([&] { return survives(n, cancel_one); }))
        ASSERT_LT(++n, 1000u);
    EXPECT_GT(n, 5u);
    far.pull(mine);
    EXPECT_EQ(mine, memory);
}

TEST_P(bulk_allocations, transfers_take_none_in_steady_state) {
    if (detail::sanitized) GTEST_SKIP() << "small blocks are not pooled under sanitizers";
    two_engines t(GetParam());
    const std::uint64_t taken = t.server.run([&] {
        std::uint64_t before = 0;
        for (int i = 0; i < 400; ++i) {
            if (i == 200) before = memory::allocations();
            t.there.held.pull(t.mine);
            t.there.held.push(5, std::span(t.mine).first(1000));
        }
        return memory::allocations() - before;
    });
    EXPECT_EQ(taken, 0u);
}

}  // namespace
}  // namespace amalgam
