// One engine at several addresses, in separate processes: on one host, and between two hosts with
// two cables, one of which is cut.
#include <atomic>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/crc32c.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "conformance/child_process.hpp"
#include "conformance/random_segments.hpp"
#include "processes/lab_keys.hpp"
#include "processes/network_host.hpp"

namespace amalgam::processes {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

constexpr std::size_t memory_bytes = std::size_t{24} << 20;
// Longer than any test blocks the client's stream.
const engine_options impatient{.ports = {.silence_limit = 3s}};
const engine_options patient{.ports = {.silence_limit = 60s}};

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string each; in >> each;)
        all.push_back(each);
    return all;
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& each : words)
        text += (text.empty() ? "" : " ") + each;
    return text;
}

/// Runs commands from the line, until something else arrives.
std::string obey(channel& line) {
    for (;;) {
        const std::string order = line.hear();
        if (order.rfind("run ", 0) != 0) return order;
        line.say(std::system(order.substr(4).c_str()) == 0 ? "ok" : "failed: " + order);
    }
}

/// Serves its memory, and a checksum of it; receives the URIs, sends the addresses.
int serve(channel& line) {
    engine server{words_of(obey(line)), patient};
    std::vector<std::byte> memory = pattern(memory_bytes);
    const exposed shown = expose(server, memory, access::read_write);
    server.define("memory", [&] { return bulk(shown); });
    server.define("sum", [&] { return crc32c(memory); });
    line.say(joined(server.addresses()));
    obey(line);
    return 0;
}

/// Moves the server's memory in one transfer; receives "URIs" and then "addresses", and for each
/// command "pull" or "push" pauses at a quarter of it until told to continue.
int use(channel& line) {
    engine client{words_of(obey(line)), impatient};
    const peer there = client.lookup(words_of(obey(line)));
    line.say(there.explain());
    std::atomic<int> lost{0};
    event gone;
    const auto watch = client.on_peer_lost([&](const peer& who, status) {
        EXPECT_TRUE(who == there);
        ++lost;
        gone.set();
    });
    const bulk memory = client.procedure<bulk()>("memory").on(there)();
    std::vector<std::byte> mine(memory_bytes);
    for (unsigned seed = 1;; ++seed) {
        const std::string order = obey(line);
        if (order == "end") {
            line.say(std::to_string(lost));
            return 0;
        }
        bool stopped = false;
        std::uint64_t last = 0;
        const bulk_options how{.on_progress =
                                   [&](std::uint64_t done) {
                                       EXPECT_GT(done, last);
                                       last = done;
                                       if (stopped || done < memory_bytes / 4) return;
                                       stopped = true;
                                       line.say("quarter");
                                       line.hear();
                                   },
                               .striped = true};
        result<void> outcome;
        if (order == "pull") {
            outcome = memory.try_pull(mine, how);
        } else {
            mine = pattern(memory_bytes, seed);
            outcome = memory.try_push(mine, how);
        }
        // Perhaps over a path that is already cut, but not known to be lost yet.
        const auto sum = client.procedure<std::uint32_t()>("sum", {.idempotent = true})
                             .on(there)
                             .retrying(3)
                             .try_call();
        if (!outcome || !sum) {
            gone.wait();
            line.say(std::string(name(outcome ? sum.code().code : outcome.code().code)));
            continue;
        }
        line.say(last == memory_bytes && *sum == crc32c(mine)
                     ? "equal, " + std::to_string(lost) + " lost, by " + there.address()
                     : "different");
    }
}

/// A child in an unnamed network namespace; see network_host.
child_process host(int (*body)(channel&)) {
    return child_process([body](channel& line) {
        if (::unshare(CLONE_NEWNET) != 0) return 1;
        line.say("ready");
        return body(line);
    });
}

void run(child_process& where, const std::string& command) {
    where.line().say("run " + command);
    ASSERT_EQ(where.line().hear(), "ok");
}

/// For each scheme.
using several_cables = testing::TestWithParam<std::string>;

INSTANTIATE_TEST_SUITE_P(tcp, several_cables, testing::Values("tcp", "tcp+tls"));

TEST_P(several_cables, between_two_hosts_a_striped_transfer_survives_the_cut_of_either) {
    if (auto why = network_host::why_not(false))
        GTEST_SKIP() << "no network of our own here: " << *why;
    const lab_keys keys(GetParam());
    keys.add("server", {"10.1.0.2", "10.2.0.2"});
    keys.add("client", {});
    child_process server = host(serve), client = host(use);
    for (child_process* each : {&server, &client}) {
        ASSERT_EQ(each->line().hear(), "ready");
        run(*each, "ip link set lo up");
    }
    const std::string nets[] = {"10.1.0.", "10.2.0."}, cables[] = {"first0", "second0"};
    for (int i = 0; i < 2; ++i) {
        run(server, "ip link add " + cables[i] + " type veth peer name " + cables[i] + " netns " +
                        std::to_string(client.pid()));
        for (auto [at, digit] : {std::pair(&server, "2"), std::pair(&client, "1")}) {
            run(*at, "ip address add " + nets[i] + digit + "/24 dev " + cables[i]);
            run(*at, "ip link set " + cables[i] + " up");
        }
    }
    const auto served = [&](const std::string& at) {
        return keys.uri(at, "server") + (keys.encrypts() ? "" : "?insecure=yes");
    };
    server.line().say(served("10.1.0.2:0") + " " + served("10.2.0.2:0"));
    const std::string addresses = server.line().hear();
    client.line().say(keys.uri("", "client"));
    client.line().say(addresses);
    const std::string explained = client.line().hear();
    ASSERT_NE(explained.find("the best of 2 that work"), std::string::npos) << explained;
    const auto moves = [&](const std::string& order, const std::string& at_a_quarter) {
        client.line().say(order);
        std::string said = client.line().hear();
        if (said != "quarter") return said;
        if (!at_a_quarter.empty()) run(server, at_a_quarter);
        client.line().say("go on");
        return client.line().hear();
    };
    const std::vector<std::string> at = words_of(addresses);
    EXPECT_EQ(moves("pull", ""), "equal, 0 lost, by " + at[0]);
    EXPECT_EQ(moves("push", "ip link set first0 down"), "equal, 0 lost, by " + at[1]);
    EXPECT_EQ(moves("pull", ""), "equal, 0 lost, by " + at[1]);
    EXPECT_EQ(moves("pull", "ip link set second0 down"), "disconnected");
    client.line().say("end");
    EXPECT_EQ(client.line().hear(), "1") << "lost once";
    EXPECT_EQ(client.join(), 0);
    server.line().say("end");
    EXPECT_EQ(server.join(), 0);
}

TEST(several_ways, on_one_host_shared_memory_is_used_and_a_killed_server_is_lost_once) {
    child_process server(serve), client(use);
    server.line().say("tcp://127.0.0.1:0 shm://");
    const std::string addresses = server.line().hear();
    client.line().say("shm:// tcp://");
    client.line().say(addresses);
    const std::string explained = client.line().hear();
    EXPECT_EQ(explained.rfind("shm://", 0), 0u) << explained;
    EXPECT_NE(explained.find("also works, over the network"), std::string::npos) << explained;
    const std::string shm = words_of(addresses)[1];
    for (const char* order : {"pull", "push"}) {
        client.line().say(order);
        ASSERT_EQ(client.line().hear(), "quarter");
        client.line().say("go on");
        EXPECT_EQ(client.line().hear(), "equal, 0 lost, by " + shm);
    }
    client.line().say("pull");
    ASSERT_EQ(client.line().hear(), "quarter");
    server.kill();
    client.line().say("go on");
    EXPECT_EQ(client.line().hear(), "disconnected");
    client.line().say("end");
    EXPECT_EQ(client.line().hear(), "1") << "lost once";
    EXPECT_EQ(client.join(), 0);
}

}  // namespace
}  // namespace amalgam::processes
