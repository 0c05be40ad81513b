#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam {

/// Connected to a server of this host: "127.0.0.1:9464", whose port counts.
inline unique_fd connect_to(const std::string& address) {
    ::sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(made.get(), reinterpret_cast<const ::sockaddr*>(&where), sizeof where), 0);
    return made;
}

/// Sends all, or as much as the other end takes before it answers.
inline void say(const unique_fd& to, std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = ::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL);
        if (put <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(put));
    }
}

/// What comes until the end.
inline std::string all_of(const unique_fd& from) {
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(from.get(), part, sizeof part, 0)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    return text;
}

/// The answer to a request as it is.
inline std::string ask(const std::string& address, std::string_view request) {
    const unique_fd there = connect_to(address);
    say(there, request);
    return all_of(there);
}

}  // namespace amalgam
