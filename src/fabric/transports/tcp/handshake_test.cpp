#include "fabric/transports/tcp/handshake.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

/// Waits until `here`, making progress, has closed its connection to `at`.
void expect_dropped(tcp_test_port& here, tcp_raw_peer& at) {
    move_until({&here}, [&] {
        if (!at.has_something()) return false;
        char byte;
        const ssize_t got = ::recv(at.fd(), &byte, 1, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
    });
}

/// Status of the first operation to `peer`.
errc fate_of(tcp_test_port& here, peer_id peer) {
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(peer, 1, "x", op), posted::pending);
    move_until({&here}, [&] { return op.over; });
    return op.code;
}

TEST(handshake, frames_before_the_hello_are_never_delivered) {
    tcp_test_port here("tcp://127.0.0.1:0");
    tcp_raw_peer eager(here.end->address());
    eager.send_frame({.kind = frame_kind::unexpected, .tag = 5},
                     as_bytes_of(std::string_view("hi")));
    expect_dropped(here, eager);
    EXPECT_TRUE(here.arrived.empty());
}

TEST(handshake, frames_behind_the_hello_in_one_piece_are_delivered) {
    tcp_test_port here("tcp://127.0.0.1:0");
    tcp_raw_peer quick(here.end->address());
    const encoded_hello ours({.incarnation = 1});
    std::string all(reinterpret_cast<const char*>(ours.bytes().data()), ours.bytes().size());
    const wire_header header = to_wire({.bytes = 2, .kind = frame_kind::unexpected, .tag = 5});
    all.append(reinterpret_cast<const char*>(header.data()), header.size()).append("hi");
    quick.send(all);
    move_until({&here}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.arrived.front().text, "hi");
    EXPECT_EQ(here.end->peer_address(here.arrived.front().from),
              socket_address::near_end(quick.fd()).uri());
}

TEST(handshake, a_silent_stranger_is_dropped_when_the_limit_is_over) {
    tcp_test_port here("tcp://127.0.0.1:0", {.silence_limit = 50ms});
    tcp_raw_peer silent(here.end->address());
    tcp_raw_peer slow(here.end->address());
    slow.send("Am");
    expect_dropped(here, silent);
    expect_dropped(here, slow);
}

TEST(handshake, the_hello_names_incarnation_and_address) {
    tcp_test_port here("tcp://127.0.0.1:0");
    tcp_raw_peer caller(here.end->address());
    caller.send(encoded_hello({.incarnation = 3}).bytes());
    move_until({&here}, [&] { return caller.has_something(); });
    ASSERT_TRUE(caller.hear_hello());
    EXPECT_EQ(caller.theirs.incarnation, here.end->incarnation());
    EXPECT_EQ(caller.theirs.address, here.end->address());
}

TEST(handshake, a_caller_of_another_version_is_told_ours_and_dropped) {
    tcp_test_port here("tcp://127.0.0.1:0");
    tcp_raw_peer old(here.end->address());
    old.send(encoded_hello({.version = 900, .incarnation = 3}).bytes());
    move_until({&here}, [&] { return old.has_something(); });
    ASSERT_TRUE(old.hear_hello());
    EXPECT_EQ(old.theirs.version, hello::current_version);
    expect_dropped(here, old);
}

TEST(handshake, a_port_of_another_version_is_a_mismatch) {
    raw_listener far;
    tcp_test_port here("tcp://");
    const peer_id there = here.look_up(far.address());
    move_until({&here}, [&] { return far.has_caller(); });
    tcp_raw_peer old = far.accept();
    old.send(encoded_hello({.version = 900, .incarnation = 3}).bytes());
    EXPECT_EQ(fate_of(here, there), errc::mismatch);
}

TEST(handshake, nothing_is_sent_before_the_other_side_said_hello) {
    raw_listener far;
    tcp_test_port here("tcp://");
    const peer_id there = here.look_up(far.address());
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(there, 1, "secret", op), posted::pending);
    move_until({&here}, [&] { return far.has_caller(); });
    tcp_raw_peer seen = far.accept();
    move_until({&here}, [&] { return seen.has_something(); });
    ASSERT_TRUE(seen.hear_hello());
    here.end->progress();
    EXPECT_FALSE(seen.has_something());
    EXPECT_FALSE(op.over);
    seen.send(encoded_hello({.incarnation = 3}).bytes());
    move_until({&here}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::ok);
    EXPECT_EQ(seen.receive().substr(16), "secret");
}

TEST(handshake, a_listener_of_another_protocol_is_unreachable) {
    raw_listener far;
    tcp_test_port here("tcp://");
    const peer_id there = here.look_up(far.address());
    move_until({&here}, [&] { return far.has_caller(); });
    far.accept().send("HTTP/1.1 400 Bad Request\r\n\r\n");
    EXPECT_EQ(fate_of(here, there), errc::unreachable);
}

TEST(handshake, one_that_accepts_and_says_nothing_is_unreachable_when_the_limit_is_over) {
    raw_listener far;  // The kernel accepts for it.
    tcp_test_port here("tcp://", {.silence_limit = 50ms});
    EXPECT_EQ(fate_of(here, here.look_up(far.address())), errc::unreachable);
}

TEST(handshake, nobody_at_the_port_is_unreachable_also_where_the_kernel_could_call_itself) {
    // Without precautions, one in some thousands of these connects a socket to itself: the kernel
    // picks the local port from the same range as the remote one.
    std::string nobody;
    {
        raw_listener gone;
        nobody = gone.address();
    }
    tcp_test_port here("tcp://");
    for (int i = 0; i < 300; ++i)
        ASSERT_EQ(fate_of(here, here.look_up(nobody)), errc::unreachable);
}

struct dialing : testing::Test, event_source {
    poller events;
    binding from;
    hello ours{.incarnation = 1};
    handshake_setting setting{events, from, ours, 5000ms};
    handshake::state now = handshake::state::waiting;
    handshake* running = nullptr;

    void ready(std::uint32_t what) noexcept override { now = running->ready(what); }
    socket_address at(const std::string& text) {
        const uri where = uri::parse(text);
        return *socket_address::numeric(where.host, *where.port);
    }
};

TEST_F(dialing, the_next_address_is_tried_when_one_refuses) {
    std::string nobody;
    {
        raw_listener gone;
        nobody = gone.address();
    }
    raw_listener far;
    handshake way(setting, *this, "tcp://somewhere:1");
    running = &way;
    now = way.dial({at(nobody), at("tcp://[::1]:1"), at(far.address())});
    while (!far.has_caller())
        events.poll();
    tcp_raw_peer there = far.accept();
    there.send(encoded_hello({.incarnation = 9}).bytes());
    while (now == handshake::state::waiting)
        events.poll();
    EXPECT_EQ(now, handshake::state::complete);
    EXPECT_EQ(way.theirs().incarnation, 9u);
}

TEST_F(dialing, addresses_of_another_family_than_the_source_are_left_out) {
    raw_listener far;
    from.source = *socket_address::numeric("::1", 0);
    handshake way(setting, *this, "tcp://somewhere:1");
    running = &way;
    EXPECT_EQ(way.dial({at(far.address())}), handshake::state::failed);
    EXPECT_EQ(way.why().what.code, errc::unreachable);
    EXPECT_NE(way.why().sentence.find("tcp://somewhere:1"), std::string::npos);
    EXPECT_FALSE(far.has_caller());
}

TEST_F(dialing, a_socket_that_the_kernel_connected_to_itself_has_reached_nobody) {
    std::string nobody;
    {
        raw_listener gone;
        nobody = gone.address();
    }
    from.source = at(nobody);  // What the kernel picks by chance, one time in some thousands.
    handshake way(setting, *this, nobody);
    running = &way;
    now = way.dial({at(nobody)});
    while (now == handshake::state::waiting)
        events.poll();
    EXPECT_EQ(now, handshake::state::failed) << "it read the hello that it had sent";
    EXPECT_EQ(way.why().what.code, errc::unreachable);
}

TEST_F(dialing, time_is_shared_between_the_addresses) {
    // Full backlog: the kernel answers no further connection.
    raw_listener deaf(0);
    handshake way(setting, *this, "tcp://somewhere:1");
    running = &way;
    const auto start = clock::steady().now();
    EXPECT_EQ(way.dial({at(deaf.address()), at(deaf.address())}), handshake::state::waiting);
    EXPECT_LT(way.deadline() - start, 4000ms);
    EXPECT_EQ(way.late(way.deadline()), handshake::state::waiting);
    EXPECT_GT(way.deadline() - start, 4000ms);
    EXPECT_EQ(way.late(way.deadline()), handshake::state::failed);
    EXPECT_EQ(way.why().what.native, ETIMEDOUT);
    EXPECT_NE(way.why().sentence.find(": no answer within 5000 ms"), std::string::npos)
        << way.why().sentence;
}

TEST(reception, without_descriptors_callers_wait_and_nothing_spins) {
    tcp_test_port here("tcp://127.0.0.1:0");
    tcp_raw_peer first(here.end->address());
    rlimit limit;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{static_cast<rlim_t>(first.fd() + 1), limit.rlim_max};
    first.send(encoded_hello({.incarnation = 1}).bytes());
    ::setrlimit(RLIMIT_NOFILE, &none);
    // The only connection cannot be accepted: one round notices that, and then there is no more
    // work.
    for (int i = 0; i < 20; ++i)
        here.end->progress();
    EXPECT_TRUE(here.end->prepare_to_sleep());
    pollfd handle{here.end->wait_handle(), POLLIN, 0};
    EXPECT_EQ(::poll(&handle, 1, 0), 0) << "a full process spins on its listener";
    ::setrlimit(RLIMIT_NOFILE, &limit);
    move_until({&here}, [&] { return first.has_something(); });
    EXPECT_TRUE(first.hear_hello());
}

}  // namespace
}  // namespace amalgam::detail
