// Limits on what strangers can make a port hold: memory, connections, time.
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <amalgam/core/log.hpp>

#include "conformance/child_process.hpp"
#include "emulated.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

/// A raw peer whose hello was answered.
tcp_raw_peer greeted(tcp_test_port& here) {
    tcp_raw_peer raw(here.end->address());
    raw.send(encoded_hello({.incarnation = 1}).bytes());
    move_until({&here}, [&] { return raw.has_something(); });
    EXPECT_TRUE(raw.hear_hello());
    return raw;
}

TEST(bounds, memory_is_taken_as_the_bytes_of_a_message_arrive) {
    tcp_test_port here("tcp://127.0.0.1:0");
    std::deque<tcp_raw_peer> liars;
    for (int i = 0; i < 50; ++i) {
        liars.push_back(greeted(here));
        liars.back().send(to_wire({.bytes = 1u << 30, .kind = frame_kind::expected, .tag = 1}));
        liars.back().send(std::string(1000, 'x'));
    }
    move_until({&here}, [&] { return here.end->usage().queued_bytes >= 50u << 20; });
    EXPECT_EQ(here.end->usage().queued_bytes, 50u << 20) << "a step for each, not what it said";
    EXPECT_TRUE(here.lost.empty());
    liars.clear();
    move_until({&here}, [&] { return here.lost.size() == 50; });
    EXPECT_EQ(here.end->usage().queued_bytes, 0u);
    EXPECT_EQ(here.end->usage().pooled_bytes, 0u) << "the pool keeps what nobody uses";
}

TEST(bounds, a_message_of_many_steps_arrives_whole) {
    tcp_test_port here("tcp://127.0.0.1:0"), there("tcp://127.0.0.1:0");
    auto [to, back] = connect(here, there);
    std::string large(30'000'000, ' ');
    for (std::size_t i = 0; i < large.size(); ++i)
        large[i] = static_cast<char>(i * 7 + (i >> 13));
    tcp_test_port::operation op;
    ASSERT_NE(here.post(to, 3, large, op), posted::full);
    move_until({&here, &there}, [&] { return there.arrived.size() == 1; });
    EXPECT_TRUE(there.arrived.front().text == large);
    EXPECT_EQ(there.end->usage().queued_bytes, 0u);
}

/// Whether the other side has closed the connection.
bool is_ended(tcp_raw_peer& raw) {
    char byte;
    return raw.has_something() && ::recv(raw.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

TEST(bounds, newcomers_take_the_place_of_the_oldest_strangers) {
    tcp_test_port here("tcp://127.0.0.1:0",
                       {.silence_limit = std::chrono::hours(1), .max_strangers = 10});
    std::deque<tcp_raw_peer> silent;
    for (int i = 0; i < 30; ++i) {
        silent.emplace_back(here.end->address());
        here.end->progress();
    }
    tcp_raw_peer last = greeted(here);
    move_until({&here}, [&] { return here.end->usage().evicted == 21; });
    for (int i = 0; i < 30; ++i)
        EXPECT_EQ(is_ended(silent[i]), i < 21) << i;
    // The slots of closed connections are free again.
    silent.clear();
    for (int i = 0; i < 20; ++i)
        here.end->progress();
    for (int i = 0; i < 10; ++i)
        silent.emplace_back(here.end->address());
    tcp_raw_peer more = greeted(here);
    EXPECT_LE(here.end->usage().evicted, 22u);
}

TEST(bounds, the_unproven_and_then_the_idle_make_way_when_no_descriptor_is_left) {
    if (is_emulated()) GTEST_SKIP() << qemu_tells_little_of_tcp;
    // The proven one has been idle for less time, and is evicted only after more.
    tcp_test_port here("tcp://127.0.0.1:0", {.silence_limit = std::chrono::milliseconds(150)});
    tcp_raw_peer unproven = greeted(here);
    tcp_raw_peer proven = greeted(here);
    proven.send_frame({.kind = frame_kind::unexpected, .tag = 1}, {});
    move_until({&here}, [&] { return here.arrived.size() == 1; });

    rlimit limit;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const auto without_descriptors = [&](tcp_raw_peer& newcomer) {
        newcomer.send(encoded_hello({.incarnation = 1}).bytes());
        const rlimit none{static_cast<rlim_t>(newcomer.fd() + 1), limit.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &none);
        move_until({&here}, [&] { return newcomer.has_something(); });
        ::setrlimit(RLIMIT_NOFILE, &limit);
        EXPECT_TRUE(newcomer.hear_hello());
        newcomer.send_frame({.kind = frame_kind::unexpected, .tag = 2}, {});
        move_until({&here}, [&] { return here.arrived.back().tag == 2; });
        here.arrived.back().tag = 0;
    };
    tcp_raw_peer first(here.end->address());
    without_descriptors(first);
    EXPECT_TRUE(is_ended(unproven));
    EXPECT_FALSE(is_ended(proven));
    tcp_raw_peer second(here.end->address());
    without_descriptors(second);
    EXPECT_TRUE(is_ended(proven)) << "it has been idle for longer than the silence limit";
    EXPECT_FALSE(is_ended(first));
}

/// From now on the kernel answers accept4() with this error.
void refuse_accept(int why) {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(why)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0) << errno;
}

TEST(bounds, what_the_host_lacks_holds_up_newcomers_and_what_one_of_them_did_wrong_does_not) {
    if (is_emulated()) GTEST_SKIP() << qemu_has_no_seccomp;
    struct refusal {
        int why;
        bool holds;
    };
    for (const refusal& each :
         {refusal{EMFILE, true}, refusal{ENFILE, true}, refusal{ENOBUFS, true},
          refusal{ENOMEM, true}, refusal{EPROTO, false}, refusal{ECONNABORTED, false}}) {
        conformance::child_process port([&each](conformance::channel&) {
            tcp_test_port here("tcp://127.0.0.1:0");
            const tcp_raw_peer newcomer(here.end->address());
            int held = 0;
            default_logger().set_sink([&](const log_record& line) {
                held += line.message == "cannot accept connections for now";
            });
            refuse_accept(each.why);
            for (int round = 0; round < 20 && held == 0; ++round)
                here.end->progress();
            default_logger().set_sink({});
            EXPECT_EQ(held, each.holds ? 1 : 0) << std::strerror(each.why);
            return 0;
        });
        EXPECT_EQ(port.join(), 0) << std::strerror(each.why);
    }
}

TEST(bounds, a_frame_that_does_not_go_on_ends_its_connection) {
    tcp_test_port here("tcp://127.0.0.1:0", {.frame_limit = std::chrono::milliseconds(40)});
    tcp_raw_peer small = greeted(here), large = greeted(here), idle = greeted(here);
    small.send(to_wire({.bytes = 100, .kind = frame_kind::unexpected, .tag = 1}));
    large.send(to_wire({.bytes = 1 << 20, .kind = frame_kind::unexpected, .tag = 1}));
    large.send(std::string(100'000, 'x'));
    auto next = clock::steady().now();
    move_until({&here}, [&] {
        if (clock::steady().now() >= next) {
            (void)large.send("x");  // A byte at a time is not enough.
            next += std::chrono::milliseconds(1);
        }
        return here.lost.size() == 2;
    });
    for (const auto& [who, why] : here.lost)
        EXPECT_EQ(why.native, ETIMEDOUT);
    EXPECT_FALSE(is_ended(idle));
    EXPECT_EQ(here.end->usage().queued_bytes, 0u);
}

TEST(bounds, a_frame_that_goes_on_slowly_is_waited_for) {
    tcp_test_port here("tcp://127.0.0.1:0", {.frame_limit = std::chrono::milliseconds(200)});
    tcp_raw_peer slow = greeted(here);
    slow.send(to_wire({.bytes = 40 * 5000, .kind = frame_kind::unexpected, .tag = 1}));
    const std::string some(5000, 'x');
    for (int i = 0; i < 40; ++i) {
        slow.send(some);
        const auto then = clock::steady().now() + std::chrono::milliseconds(10);
        move_until({&here}, [&] { return clock::steady().now() >= then; });
    }
    move_until({&here}, [&] { return !here.arrived.empty() || !here.lost.empty(); });
    EXPECT_TRUE(here.lost.empty());
}

}  // namespace
}  // namespace amalgam::detail
