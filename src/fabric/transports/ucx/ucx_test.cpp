#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "conformance/child_process.hpp"
#include "conformance/transport_suite.hpp"
#include "contains.hpp"
#include "fabric/memory/signals_testing.hpp"
#include "fabric/packets/introduced_garbage.hpp"
#include "fabric/registry/refusal_testing.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/transports/ucx/listening_ports.hpp"

namespace amalgam::detail {
namespace {

using testing_support::refusal;

const bool described =
    conformance::describe_transport("ucx+tcp", {.send_garbage = &send_wrong_introduction});

[[maybe_unused]] const bool beside_tcp = conformance::run_briefly("ucx+shm://127.0.0.1:0");
INSTANTIATE_TEST_SUITE_P(ucx, transport_suite,
                         testing::Values("ucx+tcp://127.0.0.1:0", "ucx+shm://127.0.0.1:0"));

tcp_test_port open_here(const std::string& where = "ucx+tcp://127.0.0.1:0") {
    return tcp_test_port(transport_registry::installed().open(where).value());
}

TEST(ucx_transport, protocol_that_the_machine_lacks_is_refused_with_those_it_has) {
    const std::string told = refusal("ucx+gdr_copy://127.0.0.1:0");
    EXPECT_TRUE(contains(told,
                         "uri \"ucx+gdr_copy://127.0.0.1:0\": UCX finds no device for \"gdr_copy\" "
                         "on this host; available: all, shm, "))
        << told;
    EXPECT_TRUE(contains(told, "tcp; example: ucx+tcp://127.0.0.1:0")) << told;
}

// UCX has them here, and opens them; but no port over them would ever reach a peer.
TEST(ucx_transport, transport_over_which_nobody_is_reached_is_refused) {
    for (const auto& [name, why] : {std::pair("self", "does not tell of lost peers"),
                                    std::pair("cma", "carries no messages")}) {
        const std::string told = refusal(std::string("ucx+") + name + "://127.0.0.1:0");
        EXPECT_TRUE(contains(told, std::string("UCX's \"") + name + "\" is not supported, as it " +
                                       why + "; available: all, shm, "))
            << told;
        EXPECT_FALSE(contains(told.substr(told.find("available")), name)) << told;
    }
    for (const transport_info& one : transport_registry::installed().describe())
        for (const std::string& each : one.details)
            EXPECT_FALSE(one.name == "ucx" && contains(each, "self")) << each;
}

TEST(ucx_transport, signal_handlers_of_the_program_outlive_ports) {
    expect_signals_outlive_a_port("ucx+tcp://127.0.0.1:0");
}

TEST(ucx_transport, port_without_enough_descriptors_is_refused_and_ends_no_process) {
    for (const rlim_t spare : {3, 5, 8, 12, 20}) {
        conformance::child_process child([spare](conformance::channel& parent) {
            const auto all = transport_registry::installed();
            const auto open = [&] { return all.open("ucx+shm://127.0.0.1:0"); };
            EXPECT_TRUE(open());  // Loads all that it needs.
            rlimit few{};
            ::getrlimit(RLIMIT_NOFILE, &few);
            {
                const unique_fd next(::eventfd(0, EFD_CLOEXEC));
                few.rlim_cur = static_cast<rlim_t>(next.get()) + spare;
            }
            ::setrlimit(RLIMIT_NOFILE, &few);
            const auto opened = open();
            parent.say(opened ? "opened" : opened.sentence());
            return opened.code() == errc::no_memory ? 0 : 1;
        });
        const std::string told = child.line().hear();
        EXPECT_EQ(child.join(), 0) << spare;
        EXPECT_TRUE(contains(told, "raise the limit (ulimit -n)")) << told;
    }
}

TEST(ucx_transport, device_that_the_machine_lacks_is_refused_with_those_it_has) {
    const std::string told = refusal("ucx+tcp://mlx77/127.0.0.1:0");
    EXPECT_TRUE(contains(told, "UCX has no device \"mlx77\" here; available: ")) << told;
}

TEST(ucx_transport, address_that_is_not_ours_is_refused) {
    const std::string told = refusal("ucx+tcp://192.0.2.1:0?insecure=yes");
    EXPECT_TRUE(contains(told, "192.0.2.1 is not an address of this host")) << told;
}

TEST(ucx_transport, address_of_another_kind_is_refused_by_lookup) {
    auto here = transport_registry::installed().open("ucx+tcp://127.0.0.1:0").value();
    for (const char* wrong : {"tcp://127.0.0.1:7000", "ucx+shm://127.0.0.1:7000", "ucx+tcp://h",
                              "ucx+tcp://lo/127.0.0.1:7000", "ucx+tcp://127.0.0.1:7000?a=b"}) {
        auto found = here->lookup(wrong);
        EXPECT_EQ(found.code(), errc::invalid) << wrong;
        EXPECT_TRUE(contains(found.sentence(), "example: ucx+tcp://127.0.0.1:7000"))
            << found.sentence();
    }
}

TEST(ucx_transport, interface_that_is_asked_for_is_the_one_that_ucx_uses) {
    auto here = transport_registry::installed().open("ucx+tcp://lo:0").value();
    EXPECT_TRUE(contains(here->explain(), "through lo only")) << here->explain();
    EXPECT_TRUE(here->address().starts_with("ucx+tcp://127.0.0.1:")) << here->address();
}

TEST(ucx_transport, a_port_that_other_hosts_can_reach_opens_only_if_that_is_meant) {
    EXPECT_TRUE(contains(refusal("ucx+tcp://0.0.0.0:0"),
                         "\"ucx+tcp://0.0.0.0:0\": other hosts can reach this port, and nobody is "
                         "asked who he is; use keys (tcp+tls://0.0.0.0:0?credentials=NAME, "))
        << refusal("ucx+tcp://0.0.0.0:0");
    EXPECT_EQ(refusal("ucx+tcp://0.0.0.0:0?insecure=yes"), "opened");
    // Callers, too: UCX opens a socket on every interface in use.
    EXPECT_TRUE(contains(refusal("ucx+tcp://"),
                         "other hosts can reach the sockets that UCX opens by itself"))
        << refusal("ucx+tcp://");
    for (const char* where : {"ucx+tcp://?insecure=yes", "ucx+tcp://lo/", "ucx+shm://",
                              "ucx+tcp://localhost:0", "ucx+all://127.0.0.1:0"})
        EXPECT_EQ(refusal(where), "opened") << where;
}

TEST(ucx_transport, a_caller_over_loopback_opens_no_socket_that_other_hosts_can_reach) {
    auto server = open_here();
    auto caller = open_here(client_uri(uri::parse(server.end->address())));
    EXPECT_EQ(caller.end->address(), "");
    connect(caller, server);
    const auto open = listening_ports();
    EXPECT_FALSE(open.empty());
    for (const std::string& each : open)
        EXPECT_TRUE(each.starts_with("tcp://127.")) << each;
}

TEST(ucx_transport, transfers_over_shared_memory_need_neither_packets_nor_the_target) {
    for (const char* where : {"ucx+shm://127.0.0.1:0", "ucx+posix://127.0.0.1:0",
                              "ucx+sysv://127.0.0.1:0", "ucx+all://127.0.0.1:0"}) {
        SCOPED_TRACE(where);
        tcp_test_port here = open_here(where), there = open_here(where);
        const auto [to_there, to_here] = connect(here, there);
        EXPECT_TRUE(there.send(to_here, 1, "after the answer to the first question"));
        move_until({&here, &there}, [&] { return !here.arrived.empty(); });
        std::vector<std::byte> far(1 << 20), near(1 << 20, std::byte{3}), back(1 << 20);
        const region target = there.end->open_region(far, access::read_write).value();
        const const_bytes from = near;
        const mutable_bytes into = back;
        tcp_test_port::operation op;
        EXPECT_EQ(here.end->post_put(to_there, {&from, 1}, target.key(), 0, op), posted::done);
        EXPECT_EQ(here.end->post_get(to_there, {&into, 1}, target.key(), 0, op), posted::done);
        EXPECT_EQ(far, near);
        EXPECT_EQ(back, near);
        EXPECT_EQ(here.end->transfers().direct, 2u);
        EXPECT_EQ(here.end->transfers().direct_bytes, 2u << 20);
        EXPECT_EQ(here.end->transfers().copied_bytes, 0u);
        EXPECT_EQ(there.end->transfers().served, 0u);
        EXPECT_TRUE(contains(here.end->explain(),
                             "puts and gets to processes of this host are "
                             "copied directly by the kernel"))
            << here.end->explain();
    }
}

TEST(ucx_transport, transfers_over_a_network_go_in_packets_and_say_why) {
    tcp_test_port here = open_here();
    EXPECT_EQ(here.end->can().rma, rma_mode::emulated);
    EXPECT_TRUE(contains(here.end->explain(), "puts and gets go in packets"))
        << here.end->explain();
    EXPECT_TRUE(contains(here.end->explain(), "without a look at keys")) << here.end->explain();
}

/// What `body` writes to standard output, in its own process.
std::string printed_by(const std::function<void()>& body) {
    conformance::child_process child([&](conformance::channel& parent) {
        const int paper = ::memfd_create("standard output", MFD_CLOEXEC);
        ::fflush(stdout);
        ::dup2(paper, STDOUT_FILENO);
        body();
        ::fflush(stdout);
        std::string text(static_cast<std::size_t>(::lseek(paper, 0, SEEK_END)), ' ');
        (void)!::pread(paper, text.data(), text.size(), 0);
        parent.say(text);
        return 0;
    });
    return child.line().hear();
}

TEST(ucx_transport, nothing_is_printed_on_standard_output) {
    for (const char* where :
         {"ucx+tcp://127.0.0.1:0", "ucx+shm://127.0.0.1:0", "ucx+all://127.0.0.1:0"}) {
        SCOPED_TRACE(where);
        EXPECT_EQ(printed_by([&] {
                      tcp_test_port here = open_here(where), there = open_here(where);
                      const auto [to_there, to_here] = connect(here, there);
                      tcp_test_port::operation op;
                      (void)here.post(to_there, 1, std::string(60'000, 'x'), op);
                      move_until({&here, &there}, [&] { return !there.arrived.empty(); });
                      there.end.reset();
                      move_until({&here}, [&] { return !here.lost.empty(); });
                  }),
                  "");
    }
}

/// How a child of this process is refused at `where`.
std::string refusal_in_a_child(const std::string& where) {
    conformance::child_process child([&](conformance::channel& parent) {
        parent.say(refusal(where));
        return 0;
    });
    return child.line().hear();
}

TEST(ucx_transport, child_of_a_process_that_uses_ucx_is_refused_with_what_to_do) {
    for (const char* where : {"ucx+tcp://127.0.0.1:0", "ucx+shm://127.0.0.1:0"}) {
        EXPECT_EQ(refusal_in_a_child(where), "opened");
        tcp_test_port one = open_here(where), other = open_here(where);
        one.end.reset();
        EXPECT_TRUE(contains(refusal_in_a_child(where),
                             "UCX was in use when this process was forked and does not work in the "
                             "child; fork before opening a ucx port, or after closing all"));
        EXPECT_EQ(refusal(where), "opened");
        other.end.reset();
        EXPECT_EQ(refusal_in_a_child(where), "opened");
    }
}

/// A port that echoes, in its own process, and its address.
class echoing_process {
public:
    explicit echoing_process(const std::string& where)
        : child_([where](conformance::channel& parent) {
              tcp_test_port here = open_here(where);
              here.on_arrival = [&](message& what) {
                  here.send(what.from(), what.tag(), here.arrived.back().text);
                  here.arrived.clear();
              };
              parent.say(here.end->address());
              std::string all;
              for (const std::string& one : listening_ports())
                  all += one + ' ';
              parent.say(all);
              bool told = false;
              move_until({&here}, [&] { return told = told || parent.overhear().has_value(); });
              here.end.reset();  // Before answers that were not taken are destroyed.
              return 0;
          }) {
        address = child_.line().hear();
        std::istringstream all(child_.line().hear());
        for (std::string one; all >> one;)
            ports.push_back(one);
    }
    int end() {
        child_.line().say("end");
        return child_.join();
    }

    std::string address;
    std::vector<std::string> ports;

private:
    conformance::child_process child_;
};

TEST(ucx_transport, garbage_at_any_port_that_is_open_harms_nobody) {
    echoing_process server("ucx+tcp://127.0.0.1:0");
    EXPECT_EQ(server.ports.size(), 2u) << "ours, and that of UCX's tcp";
    tcp_test_port here = open_here();
    const peer_id there = here.look_up(server.address);
    const auto works = [&](std::uint64_t tag) {
        here.arrived.clear();
        tcp_test_port::operation op;
        (void)here.post(there, tag, std::string(60'000, 'x'), op);
        move_until({&here}, [&] { return !here.arrived.empty() || !here.lost.empty(); });
        return !here.arrived.empty() && here.arrived.back().tag == tag;
    };
    ASSERT_TRUE(works(0));
    std::vector<std::unique_ptr<tcp_raw_peer>> staying;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        seeded_random dice(seed);
        for (const std::string& at : server.ports) {
            auto vandal = std::make_unique<tcp_raw_peer>(at);
            std::vector<std::byte> bytes(seed == 1 ? 4096 : dice.below(9000));
            if (seed > 3)
                for (std::byte& one : bytes)
                    one = static_cast<std::byte>(dice());
            vandal->send(bytes);
            if (seed % 3 == 0) staying.push_back(std::move(vandal));
        }
        ASSERT_TRUE(works(seed)) << "seed " << seed;
    }
    tcp_test_port newcomer = open_here();
    tcp_test_port::operation op;
    (void)newcomer.post(newcomer.look_up(server.address), 5, "welcome?", op);
    move_until({&newcomer}, [&] { return !newcomer.arrived.empty(); });
    EXPECT_EQ(server.end(), 0);
}

/// Sends to the given address until it is killed.
conformance::child_process flooding_process(const std::string& where) {
    return conformance::child_process([where](conformance::channel& parent) {
        const std::string address = parent.hear();
        tcp_test_port here = open_here(where);
        const peer_id there = here.look_up(address);
        for (std::uint64_t i = 0;; ++i) {
            tcp_test_port::operation op;
            const posted how = here.post(there, i, std::string(100, 'x'), op);
            if (how == posted::pending) move_until({&here}, [&] { return op.over; });
            here.end->progress();
        }
        return 0;
    });
}

// A process killed while it writes into the shared queue may leave the queue stuck.
TEST(ucx_transport, calls_end_also_when_a_sender_to_shared_memory_is_killed) {
    const std::string where = "ucx+shm://127.0.0.1:0";
    std::vector<conformance::child_process> vandals;
    for (int i = 0; i < 30; ++i)
        vandals.push_back(flooding_process(where));
    echoing_process friendly(where);
    tcp_test_port here = open_here(where);
    const peer_id there = here.look_up(friendly.address);
    const auto answered = [&](std::uint64_t tag) {
        tcp_test_port::operation op;
        (void)here.post(there, tag, "still there?", op);
        bool came = false;
        const auto is_lost = [&] {
            return std::any_of(here.lost.begin(), here.lost.end(),
                               [&](const auto& one) { return one.first == there; });
        };
        move_until({&here}, [&] {
            for (const auto& one : here.arrived)
                came = came || (one.from == there && one.tag == tag);
            here.arrived.clear();
            return came || is_lost();
        });
        return came;
    };
    ASSERT_TRUE(answered(1'000'000));
    std::uint64_t tag = 1'000'000;
    seeded_random dice(1);
    for (auto& vandal : vandals) {
        vandal.line().say(here.end->address());
        const std::size_t moment = 1 + dice.below(3000);
        std::size_t came = 0;
        move_until({&here}, [&] {
            came += here.arrived.size();
            here.arrived.clear();
            return came >= moment;
        });
        vandal.kill();
        if (answered(++tag)) continue;
        EXPECT_EQ(here.lost.back().second.code, errc::disconnected);
        tcp_test_port fresh = open_here(where);
        tcp_test_port::operation op;
        (void)fresh.post(fresh.look_up(friendly.address), 1, "still there?", op);
        move_until({&fresh}, [&] { return !fresh.arrived.empty(); });
        break;
    }
    EXPECT_EQ(friendly.end(), 0);
}

}  // namespace
}  // namespace amalgam::detail
