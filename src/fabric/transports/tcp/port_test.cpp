#include "fabric/transports/tcp/port.hpp"

#include <thread>

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

TEST(tcp_port, an_idle_connection_is_small) {
    static_assert(sizeof(connection) <= 512);
    static_assert(sizeof(handshake) <= 1024);
    SUCCEED();
}

/// A connected raw peer and its id at the port.
struct caller {
    tcp_raw_peer raw;
    peer_id id;

    explicit caller(tcp_test_port& here) : raw(here.end->address()) {
        raw.send(encoded_hello({.incarnation = 1}).bytes());
        move_until({&here}, [&] { return raw.has_something(); });
        EXPECT_TRUE(raw.hear_hello());
        raw.send_frame({.kind = frame_kind::unexpected, .tag = 1}, {});
        move_until({&here}, [&] { return !here.arrived.empty(); });
        id = here.arrived.front().from;
        here.arrived.clear();
    }
};

TEST(tcp_port, a_send_goes_to_the_socket_at_once_and_more_in_a_round_leave_together) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    here.end->progress();
    ASSERT_TRUE(here.send(peer.id, 1, "first"));
    EXPECT_EQ(peer.raw.receive().substr(16), "first") << "no progress() was needed";
    ASSERT_TRUE(here.send(peer.id, 2, "second"));
    ASSERT_TRUE(here.send(peer.id, 3, "third"));
    EXPECT_FALSE(peer.raw.has_something());
    EXPECT_FALSE(here.end->prepare_to_sleep()) << "it would sleep on what it has not sent";
    here.end->progress();
    const std::string together = peer.raw.receive();
    EXPECT_EQ(together.size(), 16 + 6 + 16 + 5u);
    EXPECT_TRUE(here.end->prepare_to_sleep());
}

/// The congestion control of a connected socket's other end, which is in this process.
std::string congestion_control_behind(const tcp_raw_peer& raw) {
    const socket_address near = socket_address::near_end(raw.fd());
    const socket_address far = socket_address::far_end(raw.fd());
    for (int fd = 0; fd < 1024; ++fd) {
        if (socket_address::near_end(fd) != far || socket_address::far_end(fd) != near) continue;
        char name[16] = {};
        socklen_t bytes = sizeof name;
        ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes);
        return name;
    }
    return "none";
}

TEST(tcp_port, after_a_round_of_several_sends_the_next_gathers_from_its_first) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    here.end->progress();
    ASSERT_TRUE(here.send(peer.id, 1, "first"));
    ASSERT_TRUE(here.send(peer.id, 2, "second"));
    here.end->progress();
    while (peer.raw.has_something())
        peer.raw.receive();
    ASSERT_TRUE(here.send(peer.id, 3, "third"));
    EXPECT_FALSE(peer.raw.has_something());
    EXPECT_FALSE(here.end->prepare_to_sleep()) << "it would sleep on what it has not sent";
    here.end->progress();
    EXPECT_EQ(peer.raw.receive().substr(16), "third");
    ASSERT_TRUE(here.send(peer.id, 4, "fourth"));
    EXPECT_EQ(peer.raw.receive().substr(16), "fourth") << "the round before had one send only";
}

TEST(tcp_port, nothing_is_paced_within_one_machine) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    EXPECT_EQ(congestion_control_behind(peer.raw), "reno");

    raw_listener far;
    const peer_id to = here.look_up(far.address());
    tcp_raw_peer heard = far.accept();
    move_until({&here}, [&] { return heard.has_something(); });
    EXPECT_TRUE(heard.hear_hello());
    heard.send(encoded_hello({.incarnation = 2}).bytes());
    heard.send_frame({.kind = frame_kind::unexpected, .tag = 1}, {});
    move_until({&here}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.arrived.front().from, to);
    EXPECT_EQ(congestion_control_behind(heard), "reno");
}

TEST(tcp_port, gathered_sends_leave_without_progress_when_they_are_many) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    for (int i = 0; i < 1000; ++i)
        ASSERT_TRUE(here.send(peer.id, 1, std::string(100, 'x')));
    std::size_t got = 0;
    while (peer.raw.has_something())
        got += peer.raw.receive().size();
    EXPECT_GT(got, 80'000u);
}

TEST(tcp_port, a_large_send_keeps_its_place_between_small_ones) {
    tcp_test_port here("tcp://127.0.0.1:0"), there("tcp://127.0.0.1:0");
    auto [to, back] = connect(here, there);
    const std::string large(3'000'000, 'L');
    tcp_test_port::operation op;
    ASSERT_TRUE(here.send(to, 1, "before"));
    ASSERT_TRUE(here.send(to, 2, "just before"));
    ASSERT_NE(here.post(to, 3, large, op), posted::full);
    ASSERT_TRUE(here.send(to, 4, "after"));
    move_until({&here, &there}, [&] { return there.arrived.size() == 4; });
    for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(there.arrived[i].tag, i + 1);
    EXPECT_EQ(there.arrived[2].text, large);
}

TEST(tcp_port, what_was_done_arrives_though_the_port_ends_at_once) {
    tcp_test_port there("tcp://127.0.0.1:0");
    {
        tcp_test_port here("tcp://127.0.0.1:0");
        auto [to, back] = connect(here, there);
        // Unread bytes at the end would make the kernel reset the connection.
        ASSERT_TRUE(there.send(back, 1, "never read"));
        for (int i = 0; i < 100; ++i)
            ASSERT_TRUE(here.send(to, 1, "last words"));
    }
    move_until({&there}, [&] { return !there.lost.empty(); });
    EXPECT_EQ(there.arrived.size(), 100u);
    EXPECT_EQ(there.lost.front().second, errc::disconnected);
}

TEST(tcp_port, answers_that_came_before_the_end_are_read_though_a_send_finds_it_broken) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    peer.raw.send_frame({.kind = frame_kind::unexpected, .tag = 9},
                        as_bytes_of(std::string_view("answer")));
    peer.raw.wait_until_delivered();
    const linger hard{1, 0};  // The connection ends with a reset.
    ::setsockopt(peer.raw.fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    peer.raw = tcp_raw_peer(unique_fd());
    tcp_test_port::operation ops[3];
    for (auto& op : ops)
        static_cast<void>(here.post(peer.id, 1, "too late", op));
    move_until({&here}, [&] { return !here.lost.empty(); });
    ASSERT_EQ(here.arrived.size(), 1u);
    EXPECT_EQ(here.arrived.front().text, "answer");
}

TEST(tcp_port, a_peer_that_does_not_read_for_long_is_kept) {
    // Its host answers every probe of the kernel; it is busy, not gone.
    const port_options impatient{.silence_limit = 1000ms};
    tcp_test_port here("tcp://127.0.0.1:0", impatient), there("tcp://127.0.0.1:0", impatient);
    auto [to, back] = connect(here, there);
    const std::string large(1 << 20, 'x');
    std::deque<tcp_test_port::operation> ops;
    std::size_t posts = 0;
    for (posted how = posted::done; ops.size() < 64 && how != posted::full;) {
        how = here.post(to, posts, large, ops.emplace_back());
        if (how == posted::pending) ++posts;
        if (how == posted::done) ops.back().over = true, ++posts;
    }
    // Even a program that is not scheduled for longer than the limit does not end it.
    std::this_thread::sleep_for(2 * impatient.silence_limit);
    const auto until = clock::steady().now() + 2 * impatient.silence_limit;
    move_until({&here}, [&] { return clock::steady().now() > until; });
    ASSERT_TRUE(here.lost.empty()) << to_string(here.lost.front().second);
    EXPECT_GT(here.end->open_operations(), 0u);
    move_until({&here, &there}, [&] { return there.arrived.size() == posts; });
    EXPECT_TRUE(there.lost.empty());
}

TEST(tcp_port, a_peer_that_reads_late_what_was_posted_before_it_was_there_is_kept) {
    if (is_emulated()) GTEST_SKIP() << qemu_tells_little_of_tcp;
    constexpr auto limit = 500ms;
    raw_listener far;
    const int window = 4096;
    ASSERT_EQ(::setsockopt(far.fd(), SOL_SOCKET, SO_RCVBUF, &window, sizeof window), 0);
    tcp_test_port here("tcp://", {.silence_limit = limit});
    const peer_id to = here.look_up(far.address());
    // Fills the window; the rest fits the socket, so that nothing else would tell.
    const std::string piece(4000, 'x');
    constexpr std::size_t posts = 20;
    tcp_test_port::operation ops[posts];
    for (auto& op : ops)
        ASSERT_EQ(here.post(to, 1, piece, op), posted::pending);
    move_until({&here}, [&] { return far.has_caller(); });
    tcp_raw_peer raw = far.accept();
    raw.send(encoded_hello({.incarnation = 1}).bytes());
    const auto until = clock::steady().now() + 6 * limit;
    move_until({&here}, [&] { return clock::steady().now() > until; });
    ASSERT_TRUE(here.lost.empty()) << to_string(here.lost.front().second);
    EXPECT_TRUE(raw.hear_hello());
    std::size_t bytes = 0;
    move_until({&here}, [&] {
        while (raw.has_something())
            bytes += raw.receive().size();
        return bytes >= posts * (16 + piece.size());
    });
    EXPECT_EQ(bytes, posts * (16 + piece.size()));
}

TEST(tcp_port, nobody_who_was_refused_sleeps_through_the_new_room) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller peer(here);
    tcp_test_port::operation op;
    const auto fill = [&] {
        while (here.post(peer.id, 1, std::string(100, 'x'), op) == posted::done) {
        }
    };
    for (fill(); !here.end->prepare_to_sleep(); fill())
        here.end->progress();
    for (bool awake = false; !awake;) {
        while (peer.raw.has_something())
            (void)peer.raw.receive();
        pollfd handle{here.end->wait_handle(), POLLIN, 0};
        ASSERT_EQ(::poll(&handle, 1, -1), 1);
        EXPECT_EQ(here.end->progress(), 0u);
        awake = !here.end->prepare_to_sleep();
    }
    EXPECT_EQ(here.post(peer.id, 1, "now", op), posted::done);
}

TEST(tcp_port, one_busy_peer_does_not_keep_the_others_waiting) {
    tcp_test_port here("tcp://127.0.0.1:0");
    caller busy(here), quiet(here);
    const std::string large(60'000, 'x');
    for (int i = 0; i < 20; ++i)
        busy.raw.send_frame({.kind = frame_kind::unexpected, .tag = 1}, as_bytes_of(large));
    quiet.raw.send_frame({.kind = frame_kind::unexpected, .tag = 2}, {});
    quiet.raw.wait_until_delivered();
    std::size_t rounds = 0;
    while (here.arrived.empty() || here.arrived.back().from != quiet.id) {
        ASSERT_LT(++rounds, 40u);
        here.end->progress(1);
    }
    EXPECT_LT(here.arrived.size(), 20u);
}

TEST(tcp_port, two_that_look_each_other_up_have_a_connection_each) {
    tcp_test_port a("tcp://127.0.0.1:0"), b("tcp://127.0.0.1:0");
    auto [b_at_a, a_at_b] = connect(a, b);
    auto [a_found, b_found] = connect(b, a);
    EXPECT_NE(a_found, a_at_b);
    ASSERT_TRUE(a.send(b_at_a, 1, "over mine"));
    ASSERT_TRUE(a.send(b_found, 2, "over yours"));
    move_until({&a, &b}, [&] { return b.arrived.size() == 2; });
}

TEST(tcp_port, the_end_of_an_inherited_port_in_a_child_takes_nothing_from_its_parent) {
    tcp_test_port here("tcp://127.0.0.1:0"), there("tcp://127.0.0.1:0");
    const auto [to, back] = connect(here, there);
    for (int i = 0; i < 3000; ++i) {  // Until only epoll tells of the connection.
        here.end->progress();
        there.end->progress();
    }
    ASSERT_TRUE(there.send(back, 1, "unread when the child ends"));
    const pid_t child = ::fork();
    if (child == 0) {
        here.end.reset();
        there.end.reset();
        ::_exit(0);
    }
    int code = -1;
    ASSERT_EQ(::waitpid(child, &code, 0), child);
    move_until({&here, &there}, [&] { return !here.arrived.empty(); });
    for (int i = 0; i < 3000; ++i) {
        here.end->progress();
        there.end->progress();
    }
    ASSERT_TRUE(here.send(to, 2, "still there"));
    move_until({&here, &there}, [&] { return !there.arrived.empty(); });
    connect(there, here);
}

/// A child that has copies of this process's descriptors while this object lives.
struct keeping_child {
    keeping_child() {
        int ends[2];
        if (::pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
        unique_fd in(ends[0]);
        out.reset(ends[1]);
        id = ::fork();
        if (id < 0) throw std::runtime_error("cannot fork");
        if (id > 0) return;
        out.reset();
        char end;
        (void)!::read(in.get(), &end, 1);
        ::_exit(0);
    }
    ~keeping_child() {
        out.reset();
        ::waitpid(id, nullptr, 0);
    }

    unique_fd out;
    pid_t id = -1;
};

TEST(tcp_port, a_close_is_heard_while_a_child_has_copies_of_the_descriptors) {
    tcp_test_port here("tcp://127.0.0.1:0"), there("tcp://127.0.0.1:0");
    const auto [to, back] = connect(here, there);
    const keeping_child child;
    here.end->close(to);
    move_until({&here, &there}, [&] { return !there.lost.empty(); });
    EXPECT_EQ(there.lost.front().first, back);
}

TEST(tcp_port, the_end_of_a_port_is_heard_while_a_child_has_copies_of_the_descriptors) {
    tcp_test_port there("tcp://127.0.0.1:0");
    auto here = std::make_unique<tcp_test_port>("tcp://127.0.0.1:0");
    const std::string address = here->end->address();
    connect(*here, there);
    tcp_raw_peer stranger(address);
    for (int i = 0; i < 100; ++i)  // It takes the stranger in.
        here->end->progress();
    const keeping_child child;
    here.reset();
    move_until({&there}, [&] { return !there.lost.empty(); });
    stranger.wait_for_the_end();
    EXPECT_THROW(tcp_raw_peer{address}, std::runtime_error) << "nobody would accept it";
}

TEST(tcp_port, a_port_can_look_itself_up) {
    tcp_test_port here("tcp://127.0.0.1:0");
    const peer_id self = here.look_up(here.end->address());
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(self, 1, "to myself", op), posted::pending);
    move_until({&here}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.arrived.front().text, "to myself");
    ASSERT_TRUE(here.send(here.arrived.front().from, 2, "back"));
    move_until({&here}, [&] { return here.arrived.size() == 2; });
    EXPECT_EQ(here.arrived.back().from, self);
}

TEST(tcp_port, a_thousand_peers_are_served_at_once) {
    constexpr std::size_t peers = 1000;
    rlimit files;
    ::getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < 5 * peers) GTEST_SKIP() << "the limit on open files is below 5000";
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);

    tcp_test_port here("tcp://127.0.0.1:0");
    here.on_arrival = [&](message& what) {
        ASSERT_TRUE(here.send(what.from(), what.tag(), "yes"));
    };
    std::deque<tcp_test_port> all;
    std::deque<tcp_test_port::operation> ops;
    for (std::size_t i = 0; i < peers; ++i) {
        tcp_test_port& one = all.emplace_back("tcp://");
        ASSERT_EQ(one.post(one.look_up(here.end->address()), i, "here?", ops.emplace_back()),
                  posted::pending);
    }
    std::size_t answered = 0;
    while (answered < peers) {
        here.end->progress();
        answered = 0;
        for (tcp_test_port& one : all) {
            one.end->progress();
            answered += one.arrived.size();
        }
    }
    EXPECT_EQ(here.arrived.size(), peers);
    all.clear();
    move_until({&here}, [&] { return here.lost.size() == peers; });
}

}  // namespace
}  // namespace amalgam::detail
