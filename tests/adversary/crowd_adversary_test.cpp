// A thousand connections drive an engine to each limit of its port, while one good client works
// undisturbed. src/rpc/engine/budget_test.cpp tests the limits of rpc itself in virtual time.
#include <algorithm>
#include <deque>
#include <functional>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <amalgam/rpc/engine.hpp>

#include "conformance/child_process.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"

namespace amalgam::adversary {
namespace {

using namespace detail;

constexpr std::size_t spare_descriptors = 200;

/// A thousand, or fewer if this process may not have so many descriptors.
std::size_t crowd() {
    rlimit limit;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const std::size_t most = std::min<std::size_t>(1000, limit.rlim_cur - spare_descriptors);
    testing::Test::RecordProperty("connections", static_cast<int>(most));
    return most;
}

struct held {
    std::uint64_t queued_bytes = 0, evicted = 0, descriptors = 0;
};

/// An engine in its own process.
class besieged {
public:
    explicit besieged(const port_options& ports, rlim_t descriptors = 0)
        : process_([&](conformance::channel& parent) { return serve(parent, ports, descriptors); }),
          address_(process_.line().hear()) {}

    const std::string& address() const { return address_; }
    held ask() {
        process_.line().say("what do you hold?");
        held all;
        std::istringstream(process_.line().hear()) >> all.queued_bytes >> all.evicted >>
            all.descriptors;
        return all;
    }
    int end() {
        process_.line().say("end");
        return process_.join();
    }

private:
    static int serve(conformance::channel& parent, const port_options& ports, rlim_t descriptors) {
        rlimit limit;
        ::getrlimit(RLIMIT_NOFILE, &limit);
        if (descriptors != 0) limit.rlim_cur = descriptors;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        engine server("tcp://127.0.0.1:0", {.ports = ports});
        server.define("sum", [](int a, int b) { return a + b; });
        parent.say(server.address());
        while (parent.hear() != "end") {
            std::uint64_t open = 0;  // Opens no descriptor, as none may be left.
            for (int fd = 0; fd < 4096; ++fd)
                open += ::fcntl(fd, F_GETFD) >= 0;
            std::uint64_t queued = 0, evicted = 0;
            for (const counter_value& each : server.counters().snapshot()) {
                if (each.name == "ports.queued_bytes") queued = each.value;
                if (each.name == "ports.evicted") evicted = each.value;
            }
            std::ostringstream all;
            all << queued << " " << evicted << " " << open;
            parent.say(all.str());
        }
        return 0;
    }

    conformance::child_process process_;
    std::string address_;
};

/// Its calls succeed, on its original connection.
class good_client {
public:
    explicit good_client(const std::string& address) : to_(here_.lookup(address)) { work(); }
    ~good_client() {
        for (const counter_value& each : here_.counters().snapshot()) {
            if (each.name == "rpc.peers_lost") {
                EXPECT_EQ(each.value, 0u);
            }
        }
    }
    void work() {
        EXPECT_EQ(here_.procedure<int(int, int)>("sum").on(to_).try_call(2, 3).value(), 5);
    }

private:
    engine here_{"tcp://"};
    peer to_;
};

class crowded {
public:
    crowded(besieged& at, const std::function<void(tcp_raw_peer&)>& what)
        : good_(at.address()), size_(crowd()) {
        for (std::size_t i = 0; i < size_; ++i) {
            what(all_.emplace_back(at.address()));
            if (i % 10 == 0) good_.work();
        }
    }
    good_client& good() noexcept { return good_; }
    std::size_t size() const noexcept { return size_; }

private:
    good_client good_;
    std::size_t size_;
    std::deque<tcp_raw_peer> all_;
};

void say_hello(tcp_raw_peer& one) {
    one.send(encoded_hello({.incarnation = 4711}).bytes());
}

TEST(crowd, of_connections_that_say_nothing_is_bounded) {
    constexpr std::size_t most = 50;
    besieged victim({.silence_limit = std::chrono::hours(1), .max_strangers = most});
    const std::uint64_t before = victim.ask().descriptors;
    {
        crowded all(victim, [](tcp_raw_peer&) {});
        while (victim.ask().evicted < all.size() - most)
            all.good().work();
        EXPECT_LE(victim.ask().descriptors, before + most + 2);
    }
    EXPECT_EQ(victim.end(), 0);
}

TEST(crowd, that_begins_large_messages_fills_no_memory) {
    constexpr std::size_t most = 16 << 20, longest = std::size_t{1} << 30;
    besieged victim({.max_queued_bytes = 1 << 20, .max_queued_bytes_total = most});
    {
        crowded all(victim, [](tcp_raw_peer& one) {
            say_hello(one);
            one.send(to_wire({.bytes = longest, .kind = frame_kind::expected, .tag = 1}));
            one.send(std::string(10'000, 'x'));
        });
        while (victim.ask().queued_bytes < most)
            all.good().work();
        EXPECT_LE(victim.ask().queued_bytes, most + longest);
        all.good().work();
    }
    EXPECT_EQ(victim.end(), 0);
}

TEST(crowd, takes_all_descriptors_and_the_idle_make_way) {
    constexpr rlim_t descriptors = 120;
    besieged victim({}, descriptors);
    {
        crowded all(victim, say_hello);
        while (victim.ask().evicted < 10)
            all.good().work();
        EXPECT_LE(victim.ask().descriptors, descriptors);
    }
    EXPECT_EQ(victim.end(), 0);
}

}  // namespace
}  // namespace amalgam::adversary
