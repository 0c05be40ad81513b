#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <amalgam/core/unique_fd.hpp>

namespace ff::testing_groups {

/// Where nobody listens now, and nobody else is going to: the kernel gives out none of these by
/// itself, and of this function's callers each keeps the name of a port until its process ends.
inline std::string free_port() {
    static std::vector<amalgam::unique_fd> names;
    for (std::uint16_t port = 20000; port < 32768; ++port) {
        const std::string number = std::to_string(port);
        const std::string_view own = "amalgam-test-port-";
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::copy(number.begin(), number.end(),
                  std::copy(own.begin(), own.end(), name.sun_path + 1));
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + own.size() +
                                                 number.size());
        amalgam::unique_fd mine(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::bind(mine.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) continue;
        const amalgam::unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons(port);
        if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) continue;
        names.push_back(std::move(mine));
        return number;
    }
    throw std::runtime_error("no port is free");
}

}  // namespace ff::testing_groups
