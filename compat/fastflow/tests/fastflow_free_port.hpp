#pragma once

#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>

namespace ff::testing_groups {

/// Where nobody listens now.
inline std::string free_port() {
    const amalgam::unique_fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
        throw std::runtime_error("no port is free");
    return std::to_string(ntohs(at.sin_port));
}

}  // namespace ff::testing_groups
