#pragma once

#include <cerrno>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::bench {

[[noreturn]] inline void fail(const char* what) {
    throw error(status{errc::internal, errno}, std::string(what) + " failed");
}

inline void no_delay(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

inline unique_fd listen_on_loopback(std::string& port) {
    unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof where;
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), bytes) != 0) fail("bind");
    if (::listen(fd.get(), 1) != 0) fail("listen");
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &bytes);
    port = std::to_string(ntohs(where.sin_port));
    return fd;
}

inline unique_fd connect_to(const std::string& port) {
    unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
        fail("connect");
    no_delay(fd.get());
    return fd;
}

}  // namespace amalgam::bench
