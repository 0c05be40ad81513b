// The lower bound for anything over tcp: two processes, one loopback connection, no library.
//   raw_socket latency SIZE SECONDS    both ends poll a non-blocking socket
//   raw_socket stream  SIZE SECONDS    items of SIZE bytes in writes of 64 KiB
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include <amalgam/core/status.hpp>

#include "loopback.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;
using namespace amalgam::bench;

/// False if the other end closed.
bool receive_all(int fd, std::byte* into, std::size_t bytes, int flags) {
    for (std::size_t at = 0; at < bytes;) {
        const auto n = ::recv(fd, into + at, bytes - at, flags);
        if (n > 0)
            at += static_cast<std::size_t>(n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
    }
    return true;
}

bool send_all(int fd, const std::byte* from, std::size_t bytes, int flags) {
    for (std::size_t at = 0; at < bytes;) {
        const auto n = ::send(fd, from + at, bytes - at, flags | MSG_NOSIGNAL);
        if (n > 0)
            at += static_cast<std::size_t>(n);
        else if (errno != EAGAIN && errno != EINTR)
            return false;
    }
    return true;
}

perf::measurement latency(std::size_t size, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) {
        std::string port;
        const unique_fd listener = listen_on_loopback(port);
        talk.write_line(port);
        const unique_fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        no_delay(fd.get());
        std::vector<std::byte> bytes(size);
        while (receive_all(fd.get(), bytes.data(), size, MSG_DONTWAIT) &&
               send_all(fd.get(), bytes.data(), size, MSG_DONTWAIT)) {
        }
    });
    const unique_fd fd = connect_to(peer.talk().read_line());
    std::vector<std::byte> bytes(size);
    auto m = perf::measure_round_trips(seconds, [&] {
        if (!send_all(fd.get(), bytes.data(), size, MSG_DONTWAIT) ||
            !receive_all(fd.get(), bytes.data(), size, MSG_DONTWAIT))
            fail("round trip");
    });
    m.bytes_per_s = 2 * m.ops_per_s * static_cast<double>(size);
    return m;
}

perf::measurement stream(std::size_t size, double seconds) {
    constexpr std::size_t block = 64 << 10;
    perf::forked_peer peer([&](perf::channel& talk) {
        std::string port;
        const unique_fd listener = listen_on_loopback(port);
        talk.write_line(port);
        const unique_fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        std::vector<std::byte> bytes(block);
        std::uint64_t total = 0;
        const auto start = perf::clock_type::now();
        for (;;) {
            const auto n = ::recv(fd.get(), bytes.data(), block, 0);
            if (n <= 0) break;
            total += static_cast<std::uint64_t>(n);
        }
        talk.write_line(std::to_string(static_cast<double>(total) / perf::seconds_since(start)));
        talk.read_line();
    });
    unique_fd fd = connect_to(peer.talk().read_line());
    const std::vector<std::byte> bytes(block);
    const auto start = perf::clock_type::now();
    while (perf::seconds_since(start) < seconds)
        if (!send_all(fd.get(), bytes.data(), block, 0)) fail("send");
    fd.reset();
    perf::measurement m;
    m.bytes_per_s = std::stod(peer.talk().read_line());
    m.ops_per_s = m.bytes_per_s / static_cast<double>(size);
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s latency|stream SIZE SECONDS\n", argv[0]);
        return 2;
    }
    const std::string_view test = argv[1];
    const auto size = static_cast<std::size_t>(std::atoll(argv[2]));
    auto m =
        test == "latency" ? latency(size, std::atof(argv[3])) : stream(size, std::atof(argv[3]));
    m.test = test == "latency" ? "message-latency" : "stream-rate";
    m.uri = "raw-socket";
    m.size_bytes = size;
    std::puts(perf::to_json(m).c_str());
}
