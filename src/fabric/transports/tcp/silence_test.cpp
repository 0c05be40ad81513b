#include "fabric/transports/tcp/silence.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

TEST(silence, a_shut_window_is_a_stall_only_while_its_host_answers) {
    EXPECT_EQ(judge({}, 5s), sender_state::clear);
    EXPECT_EQ(judge({.unacknowledged = 1, .unsent_bytes = 9, .since_answer = 9s}, 5s),
              sender_state::moving);
    EXPECT_EQ(judge({.unsent_bytes = 9, .unanswered = 0, .since_answer = 9s}, 5s),
              sender_state::stalled);
    EXPECT_EQ(judge({.unsent_bytes = 9, .unanswered = 5, .since_answer = 4s}, 5s),
              sender_state::stalled);
    EXPECT_EQ(judge({.unsent_bytes = 9, .unanswered = 2, .since_answer = 6s}, 5s),
              sender_state::dead);
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

TEST(silence, a_reader_that_does_not_read_is_a_stall) {
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

    EXPECT_EQ(look_at_sender(sender.get(), 5s), sender_state::clear);
    char some[65536] = {};
    while (::send(sender.get(), some, sizeof some, MSG_DONTWAIT) > 0) {
    }
    while (look_at_sender(sender.get(), 5s) != sender_state::stalled) {
    }  // Last bytes are in flight.
    while (look_at_sender(sender.get(), 5s) != sender_state::clear)
        ::recv(reader.get(), some, sizeof some, MSG_DONTWAIT);
}

}  // namespace
}  // namespace amalgam::detail
