#include "fabric/sockets/silence.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>

#include "emulated.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

TEST(silence, a_host_is_dead_only_when_retransmissions_or_window_probes_go_unanswered) {
    const auto found = [](std::uint32_t unacknowledged, std::uint32_t unsent_bytes,
                          std::uint32_t unanswered, std::chrono::milliseconds since_answer) {
        return judge({unacknowledged, unsent_bytes, unanswered, since_answer, 9s}, 5s);
    };
    EXPECT_EQ(found(0, 0, 0, 9s), sender_state::clear);
    for (const std::uint32_t in_flight : {0u, 1u}) {
        EXPECT_EQ(found(in_flight, 9, 0, 9s), sender_state::busy);
        EXPECT_EQ(found(in_flight, 9, 1, 9s), sender_state::busy);
        EXPECT_EQ(found(in_flight, 9, 5, 4s), sender_state::busy);
        EXPECT_EQ(found(in_flight, 9, 2, 6s), sender_state::dead);
    }
    EXPECT_EQ(found(1, 0, 2, 6s), sender_state::dead);
}

TEST(silence, does_not_count_before_there_was_something_to_answer) {
    const auto found = [](std::chrono::milliseconds since_asked) {
        return judge({1, 9, 2, 6s, since_asked}, 5s);
    };
    EXPECT_EQ(found(4s), sender_state::busy);
    EXPECT_EQ(found(6s), sender_state::dead);
}

int option(int fd, int level, int which) {
    int value = -1;
    socklen_t bytes = sizeof value;
    EXPECT_EQ(::getsockopt(fd, level, which, &value, &bytes), 0);
    return value;
}

TEST(silence, the_kernel_is_told_the_limit_in_its_units) {
    unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    watch_silence(socket.get(), 2500ms);
    EXPECT_EQ(option(socket.get(), SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(option(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(option(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 2500);
    limit_unacknowledged(socket.get(), 0ms);
    EXPECT_EQ(option(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

TEST(silence, a_reader_that_does_not_read_is_busy) {
    if (is_emulated()) GTEST_SKIP() << qemu_tells_little_of_tcp;
    unique_fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int little = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    unique_fd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(sender.get(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
    unique_fd reader(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));

    sender_watch watch;
    const auto look = [&] { return watch.look(sender.get(), 5s, clock::steady().now()); };
    watch.begin(sender.get(), clock::steady().now());
    EXPECT_EQ(look(), sender_state::clear);
    char some[65536] = {};
    while (::send(sender.get(), some, sizeof some, MSG_DONTWAIT) > 0) {
    }
    EXPECT_EQ(look(), sender_state::busy);
    while (look() != sender_state::clear)
        ::recv(reader.get(), some, sizeof some, MSG_DONTWAIT);
}

}  // namespace
}  // namespace amalgam::detail
