#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/run.hpp>

#include "perf/pair.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {
namespace {

/// A port number at 127.0.0.1 or ::1 that is free once `held` is closed.
std::uint16_t free_port(bool ipv6, unique_fd& held) {
    unique_fd fd(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    auto* where = ipv6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t bytes = ipv6 ? sizeof v6 : sizeof v4;
    if (::bind(fd.get(), where, bytes) != 0 || ::getsockname(fd.get(), where, &bytes) != 0)
        throw error(status{errc::unreachable, errno}, "no free port on the loopback interface");
    held = std::move(fd);
    return ntohs(ipv6 ? v6.sin6_port : v4.sin_port);
}

/// `uri` with a name or port that both processes can know in advance.
std::string fixed(const std::string& text, unique_fd& held) {
    uri where = uri::parse(text);
    if (where.scheme == "shm" && where.name.empty())
        where.name = fmt::format("perf-{:016x}", random_u64());
    if (where.port == 0) where.port = free_port(where.host.find(':') != std::string::npos, held);
    return to_string(where);
}

/// A file in memory that holds `text`, readable by the forked peer under the same path.
unique_fd file_of(const std::string& text) {
    unique_fd fd(::memfd_create("amalgam-perf", 0));
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw error(status{errc::no_memory, errno}, "could not write the measurement's config");
    return fd;
}

template <typename Item>
measurement stream_of(const request& asked, const Item& sample) {
    flow_config config;
    {
        unique_fd held[2];  // Until both are chosen, which else could be the same.
        for (const std::size_t i : {0, 1})
            config.groups.push_back({.name = i == 0 ? "from" : "to",
                                     .endpoints = {fixed(asked.uri, held[i])},
                                     .threads = 1,
                                     .env = {}});
    }
    const unique_fd file = file_of(to_json(config));
    ::setenv("AMALGAM_CONFIG", fmt::format("/proc/self/fd/{}", file.get()).c_str(), 1);

    std::uint64_t arrived = 0;
    clock_type::time_point first;
    const auto run_group = [&](const char* group) {
        ::setenv("AMALGAM_GROUP", group, 1);
        graph stream;
        auto source = stream.add_source<Item>("source", [&](outlet<Item>& out) {
            const auto until = clock_type::now() + std::chrono::duration<double>(asked.seconds);
            do {
                for (int i = 0; i < 1024; ++i)
                    out.send(sample);
            } while (clock_type::now() < until);
        });
        auto sink = stream.add_sink<Item>("sink", [&](const Item&) {
            if (arrived++ == 0) first = clock_type::now();
        });
        stream.pipeline(source, sink);
        stream.group("from").add(source);
        stream.group("to").add(sink);
        run(stream, {.threads = 1});
    };
    double elapsed = 0;
    {
        forked_peer peer([&](channel&) { run_group("from"); });
        run_group("to");
        elapsed = seconds_since(first);
    }
    measurement m;
    m.ops_per_s = static_cast<double>(arrived) / elapsed;
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

}  // namespace

measurement stream_rate(const request& asked) {
    if (asked.size_bytes == 64) return stream_of(asked, std::array<std::uint64_t, 8>{});
    return stream_of(asked, std::vector<std::byte>(asked.size_bytes));
}

}  // namespace amalgam::perf
