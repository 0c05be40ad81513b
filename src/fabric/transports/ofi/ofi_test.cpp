#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

#include "conformance/transport_suite.hpp"
#include "contains.hpp"
#include "fabric/memory/signals_testing.hpp"
#include "fabric/packets/introduced_garbage.hpp"
#include "fabric/registry/refusal_testing.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

using testing_support::refusal;

const bool described =
    conformance::describe_transport("ofi+tcp", {.send_garbage = &send_wrong_introduction});

INSTANTIATE_TEST_SUITE_P(ofi, transport_suite, testing::Values("ofi+tcp://127.0.0.1:0"));

// libfabric's own puts and gets, with the keys and addresses that its modes ask for.
[[maybe_unused]] const bool with_other_modes =
    conformance::run_briefly("ofi+tcp://127.0.0.1:0?one_sided=any&mr_mode=basic,local");
INSTANTIATE_TEST_SUITE_P(
    ofi_one_sided, transport_suite,
    testing::Values("ofi+tcp://127.0.0.1:0?one_sided=any",
                    "ofi+tcp://127.0.0.1:0?one_sided=any&mr_mode=basic,local"));

TEST(ofi_transport, provider_that_libfabric_has_no_part_for_is_refused_with_those_it_has) {
    const std::string told = refusal("ofi+nonsense://127.0.0.1:0");
    EXPECT_TRUE(contains(told,
                         "uri \"ofi+nonsense://127.0.0.1:0\": libfabric has no provider "
                         "\"nonsense\" here, which this build of libfabric does not include; "
                         "available: "))
        << told;
    EXPECT_TRUE(contains(told, "tcp")) << told;
    EXPECT_TRUE(contains(told, "; example: ofi+tcp://127.0.0.1:0")) << told;
}

TEST(ofi_transport, signal_handlers_of_the_program_outlive_ports) {
    expect_signals_outlive_a_port("ofi+tcp://127.0.0.1:0");
}

TEST(ofi_transport, provider_that_fails_the_suite_is_refused) {
    EXPECT_EQ(refusal("ofi+tcp;ofi_rxm://127.0.0.1:0"),
              "uri \"ofi+tcp;ofi_rxm://127.0.0.1:0\": libfabric's \"tcp;ofi_rxm\" is not "
              "supported, as it fails when packets are sent while its endpoints connect; use "
              "ofi+tcp:// instead; example: ofi+tcp://127.0.0.1:0");
    for (const char* where : {"ofi+shm://127.0.0.1:0", "ofi+net://127.0.0.1:0"})
        EXPECT_TRUE(contains(refusal(where), "is not supported, as it ")) << refusal(where);
}

TEST(ofi_transport, domain_that_the_machine_lacks_is_refused_with_those_it_has) {
    const std::string told = refusal("ofi+tcp://mlx77/127.0.0.1:0");
    EXPECT_TRUE(contains(told, "\"tcp\" has no domain \"mlx77\" here; available: ")) << told;
    EXPECT_TRUE(contains(told, "lo")) << told;
}

TEST(ofi_transport, domain_that_lacks_the_address_is_refused) {
    const std::string told = refusal("ofi+tcp://lo/192.0.2.77:0?insecure=yes");
    EXPECT_TRUE(contains(told, "has no endpoint at 192.0.2.77 in domain lo")) << told;
}

TEST(ofi_transport, a_port_that_other_hosts_can_reach_opens_only_if_that_is_meant) {
    EXPECT_TRUE(contains(refusal("ofi+tcp://0.0.0.0:0"),
                         "\"ofi+tcp://0.0.0.0:0\": other hosts can reach this port, and nobody is "
                         "asked who he is; use keys (ofi+tcp+tls://0.0.0.0:0?credentials=NAME, "))
        << refusal("ofi+tcp://0.0.0.0:0");
    EXPECT_EQ(refusal("ofi+tcp://0.0.0.0:0?insecure=yes"), "opened");
    EXPECT_EQ(refusal("ofi+tcp://lo:0?one_sided=no"), "opened");
    EXPECT_EQ(refusal("ofi+tcp://"), "opened");
}

// The whole suite is slow over these: it was run by hand, see docs/design/ofi.md.
TEST(ofi_transport, ends_without_connections_carry_messages_and_tell_of_loss) {
    for (const char* where : {"ofi+sockets://127.0.0.1:0", "ofi+udp://127.0.0.1:0"}) {
        SCOPED_TRACE(where);
        auto opened = transport_registry::installed().open(where);
        if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
        tcp_test_port here(std::move(opened).value());
        tcp_test_port there(transport_registry::installed().open(where).value());
        const auto [to_there, to_here] = connect(here, there);
        const std::string large(1'000'000, 'x');
        tcp_test_port::operation go, come;
        (void)here.post(to_there, 1, large, go);
        (void)there.post(to_here, 2, large, come);
        move_until({&here, &there},
                   [&] { return !here.arrived.empty() && !there.arrived.empty(); });
        EXPECT_EQ(there.arrived.front().text, large);
        EXPECT_EQ(here.arrived.front().text, large);
        move_until({&here, &there}, [&] { return go.over && come.over; });
        there.end.reset();
        move_until({&here}, [&] { return !here.lost.empty(); });
        EXPECT_EQ(here.lost.front().first, to_there);
        EXPECT_EQ(here.lost.front().second.code, errc::disconnected);
    }
}

TEST(ofi_transport, address_of_another_kind_is_refused_by_lookup) {
    auto here = transport_registry::installed().open("ofi+tcp://127.0.0.1:0").value();
    for (const char* wrong : {"tcp://127.0.0.1:7000", "ofi+shm://127.0.0.1:7000", "ofi+tcp://h",
                              "ofi+tcp://lo/127.0.0.1:7000", "ofi+tcp://127.0.0.1:7000?a=b"}) {
        auto found = here->lookup(wrong);
        EXPECT_EQ(found.code(), errc::invalid) << wrong;
        EXPECT_TRUE(contains(found.sentence(), "example: ofi+tcp://127.0.0.1:7000"))
            << found.sentence();
    }
}

TEST(ofi_transport, domain_that_is_asked_for_is_the_one_that_is_used) {
    auto here = transport_registry::installed().open("ofi+tcp://lo/:0").value();
    EXPECT_TRUE(contains(here->explain(), "in domain lo from 127.0.0.1")) << here->explain();
    EXPECT_TRUE(contains(here->explain(), "puts and gets go in packets")) << here->explain();
    EXPECT_TRUE(here->address().starts_with("ofi+tcp://127.0.0.1:")) << here->address();
}

TEST(ofi_transport, port_that_was_long_awake_is_woken_by_packets) {
    tcp_test_port here(transport_registry::installed().open("ofi+tcp://127.0.0.1:0").value());
    tcp_test_port there(transport_registry::installed().open("ofi+tcp://127.0.0.1:0").value());
    const peer_id to_here = connect(here, there).second;
    for (int time = 0; time < 3; ++time) {
        for (int round = 0; round < 5000; ++round)
            here.end->progress();
        while (!here.end->prepare_to_sleep())
            here.end->progress();
        EXPECT_TRUE(there.send(to_here, 1, "wake up"));
        pollfd handle{here.end->wait_handle(), POLLIN, 0};
        while (::poll(&handle, 1, 1) == 0)
            there.end->progress();
        move_until({&here}, [&] { return !here.arrived.empty(); });
        here.arrived.clear();
    }
}

/// Until it sleeps, and nothing wakes it.
void fall_asleep(tcp_test_port& one, const std::vector<tcp_test_port*>& all) {
    pollfd handle{one.end->wait_handle(), POLLIN, 0};
    do {
        one.end->progress();  // An armed handle stays ready until then, as by a timer that ticks.
        move_until(all, [&] { return one.end->prepare_to_sleep(); });
    } while (::poll(&handle, 1, 0) != 0);
}

// The first few are asked by poll(), the others by an epoll set.
TEST(ofi_transport, each_of_many_peers_wakes_a_port_that_sleeps) {
    const auto open = [] {
        return std::make_unique<tcp_test_port>(
            transport_registry::installed().open("ofi+tcp://127.0.0.1:0").value());
    };
    const auto hub = open();
    std::vector<std::unique_ptr<tcp_test_port>> ends;
    std::vector<peer_id> to_hub;
    const auto all = [&] {
        std::vector<tcp_test_port*> those{hub.get()};
        for (const auto& each : ends)
            those.push_back(each.get());
        return those;
    };
    const auto each_wakes = [&] {
        for (std::size_t i = 0; i < ends.size(); ++i) {
            SCOPED_TRACE(i);
            fall_asleep(*hub, all());
            EXPECT_TRUE(ends[i]->send(to_hub[i], 1, "wake up"));
            pollfd handle{hub->end->wait_handle(), POLLIN, 0};
            while (::poll(&handle, 1, 1) == 0)
                ends[i]->end->progress();
            move_until(all(), [&] { return !hub->arrived.empty(); });
            const peer_id from = hub->arrived.front().from;
            hub->arrived.clear();
            EXPECT_TRUE(hub->send(from, 2, "awake"));
            move_until(all(), [&] { return !ends[i]->arrived.empty(); });
            ends[i]->arrived.clear();
        }
    };
    const auto add = [&](std::size_t count) {
        for (; count > 0; --count) {
            ends.push_back(open());
            to_hub.push_back(connect(*hub, *ends.back()).second);
        }
    };
    add(11);
    each_wakes();
    for (int round = 0; round < 5000; ++round)
        hub->end->progress();
    each_wakes();
    // Of both kinds; others take their places.
    ends.erase(ends.begin() + 5, ends.end() - 1);
    to_hub.erase(to_hub.begin() + 5, to_hub.end() - 1);
    move_until(all(), [&] { return hub->lost.size() == 5; });
    add(4);
    each_wakes();
}

TEST(ofi_transport, other_end_whose_program_stands_still_is_waited_for) {
    constexpr std::chrono::milliseconds limit(200);
    raw_listener standing_still;  // The second connection is accepted only by the kernel.
    tcp_test_port far("tcp://127.0.0.1:0");
    tcp_test_port here(transport_registry::installed().open("ofi+tcp://", {limit}).value());
    const peer_id there = here.look_up("ofi+" + far.end->address());
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(there, 1, "x", op), posted::pending);
    move_until({&here, &far}, [&] { return !far.arrived.empty(); });
    const auto& introduction = far.arrived.front();
    far.send(introduction.from, introduction.tag,
             std::string("\1\0\0\0\0\0\0\0\7\0ofi+tcp", 17) + standing_still.address());
    move_until({&here, &far}, [&] { return standing_still.has_caller(); });

    const auto long_over = std::chrono::steady_clock::now() + 5 * limit;
    move_until({&here, &far}, [&] { return std::chrono::steady_clock::now() > long_over; });
    EXPECT_TRUE(here.lost.empty());
    EXPECT_FALSE(op.over);
    far.end.reset();
    move_until({&here}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::disconnected);
}

}  // namespace
}  // namespace amalgam::detail
