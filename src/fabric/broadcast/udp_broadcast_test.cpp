#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>

#include "core/returning_child_testing.hpp"
#include "emulated.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Packets received from a medium.
class listener {
public:
    explicit listener(std::shared_ptr<broadcast_medium> on) : on_(std::move(on)) {
        on_->listen([this](const_bytes packet) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packet.data()) % 16, 0u);
            const std::lock_guard one(lock_);
            heard_.emplace(reinterpret_cast<const char*>(packet.data()), packet.size());
            changed_.notify_all();
        });
    }
    ~listener() { on_->listen({}); }

    /// UDP may lose any packet, even here: repeat it until it is received.
    bool hears_from(broadcast_medium& from, const std::string& what) {
        for (int attempts = 100; attempts > 0; --attempts) {
            if (!from.send(as_bytes_of(what))) return false;
            std::unique_lock one(lock_);
            if (changed_.wait_for(one, 50ms, [&] { return heard_.contains(what); })) return true;
        }
        return false;
    }

private:
    std::shared_ptr<broadcast_medium> on_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::set<std::string> heard_;
};

/// Other tests that run meanwhile have the same media open.
std::string from_here(const std::string& text) {
    return std::to_string(::getpid()) + ' ' + text;
}

std::string why_not(const std::string& uri) {
    try {
        (void)open_broadcast(uri);
    } catch (const error& why) {
        return std::string(name(why.code().code)) + ": " + why.what();
    }
    return "it can";
}

// The broadcast address of the loopback interface, and a multicast group on it. The kernel gives
// such ports to nobody by itself.
class udp_broadcast_test : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const bool names_interface = std::string_view(GetParam()).find('?') != std::string::npos;
        if (names_interface && is_emulated()) GTEST_SKIP() << "qemu has no IP_MULTICAST_IF";
    }
};

TEST_P(udp_broadcast_test, all_that_have_it_open_hear_each_other_and_themselves) {
    const auto a = open_broadcast(GetParam()), b = open_broadcast(GetParam());
    listener at_a(a), at_b(b);
    EXPECT_TRUE(at_b.hears_from(*a, from_here("from a")));
    EXPECT_TRUE(at_a.hears_from(*b, from_here("from b")));
    EXPECT_TRUE(at_a.hears_from(*a, from_here("to itself")));
    std::string long_one = from_here("x");
    long_one.resize(a->max_bytes(), 'x');
    EXPECT_TRUE(at_b.hears_from(*a, long_one));
    EXPECT_FALSE(a->send(as_bytes_of(std::string(a->max_bytes() + 1, 'x'))));
}

TEST_P(udp_broadcast_test, a_receiver_that_was_taken_back_is_not_running_and_hears_no_more) {
    const auto a = open_broadcast(GetParam()), b = open_broadcast(GetParam());
    std::atomic<bool> inside{false}, may_return{false}, returned{false};
    std::atomic<int> heard{0};
    b->listen([&](const_bytes) {
        ++heard;
        if (inside.exchange(true)) return;
        while (!may_return)
            std::this_thread::yield();
        for (int i = 0; i < 5; ++i)  // Time for an unsubscribe that does not wait.
            std::this_thread::yield();
        returned = true;
    });
    while (!inside) {
        EXPECT_TRUE(a->send(as_bytes_of(std::string("?"))));
        std::this_thread::yield();
    }
    may_return = true;
    b->listen({});
    EXPECT_TRUE(returned);
    const int before = heard;
    listener proves(a);
    EXPECT_TRUE(proves.hears_from(*b, from_here("sent after all others")));
    EXPECT_EQ(heard, before);
}

TEST_P(udp_broadcast_test, a_receiver_that_throws_hears_the_next_packet) {
    const auto a = open_broadcast(GetParam()), b = open_broadcast(GetParam());
    default_logger().set_sink([](const log_record&) {});
    std::atomic<int> threw{0};
    b->listen([&](const_bytes) {
        if (threw++ % 2 == 0) throw std::runtime_error("it does not like it");
        throw 7;
    });
    while (threw < 4) {
        EXPECT_TRUE(a->send(as_bytes_of(std::string("?"))));
        std::this_thread::yield();
    }
    b->listen({});
    default_logger().set_sink({});
    listener goes_on(b);
    EXPECT_TRUE(goes_on.hears_from(*a, from_here("still here?")));
}

TEST_P(udp_broadcast_test, a_child_that_returns_from_a_receiver_is_ended) {
    const auto a = open_broadcast(GetParam()), b = open_broadcast(GetParam());
    core_testing::child_that_returns child;
    b->listen([&](const_bytes) {
        if (!child.forked()) child.fork();
    });
    while (!child.forked()) {
        a->send(as_bytes_of(std::string("again")));
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(child.was_ended());
    b->listen({});
}

INSTANTIATE_TEST_SUITE_P(loopback, udp_broadcast_test,
                         testing::Values("udp://127.255.255.255:27101",
                                         "udp://239.77.1.2:27101?interface=127.0.0.1"));

TEST(udp_broadcast, what_is_no_group_of_this_host_is_refused_with_a_reason) {
    for (const char* bad :
         {"tcp://127.255.255.255:1", "udp://127.0.0.1:7101", "udp://here:7101", "udp://239.1.2.3",
          "udp://239.1.2.3:0", "udp://239.1.2.3:70000", "udp://239.1.2.3:71x",
          "udp://239.1.2.3:7101?colour=red", "udp://239.1.2.3:7101?interface=eth",
          "udp://8.8.8.8:7101", "udp://127.255.255.255:7101?interface=127.0.0.1"}) {
        const std::string said = why_not(bad);
        EXPECT_TRUE(said.starts_with("invalid: ")) << bad << ": " << said;
        EXPECT_NE(said.find("example: udp://"), std::string::npos) << said;
    }
    EXPECT_TRUE(
        why_not("udp://239.1.2.3:27102?interface=203.0.113.9").starts_with("unreachable: "));
}

}  // namespace
}  // namespace amalgam
