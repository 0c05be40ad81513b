// Cost of 10,000 connected but silent tcp peers.
//   idle_peers memory    bytes of this process per peer
//   idle_peers slowdown  a round trip with one more peer, over the same without them
// The peers are bare sockets in another process that speak docs/wire/tcp.md.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/transport.hpp>

#include "counted_arrivals.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;

constexpr std::size_t idle_peers = 10'000;
constexpr std::uint64_t bring_the_others = 1;
constexpr std::size_t header_bytes = 16;
constexpr double seconds = 0.5;

[[noreturn]] void fail(const char* what) {
    throw error(status{errc::internal, errno}, std::string(what) + " failed");
}

void allow_many_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, idle_peers + 200);
    if (limit.rlim_cur < idle_peers + 200 || ::setrlimit(RLIMIT_NOFILE, &limit) != 0)
        throw error(errc::no_memory,
                    "10,000 peers need as many file descriptors in each of two processes; raise "
                    "the hard limit of open files (ulimit -Hn)");
}

void store(std::byte* to, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        to[i] = static_cast<std::byte>(value >> (8 * i));
}

/// A hello followed by an empty message, by which the port learns of the peer.
std::array<std::byte, 48> first_words() {
    std::array<std::byte, 48> out{};
    store(&out[0], 16, 4);
    out[4] = std::byte{16};
    store(&out[6], 2, 2);  // The version of the protocol.
    std::memcpy(&out[8], "Amalgm\n1", 8);
    store(&out[16], 1, 8);
    out[32 + 4] = std::byte{1};
    return out;
}

unique_fd connect_to(const uri& where) {
    unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(*where.port);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fail("connect");
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto words = first_words();
    if (::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL) != std::ssize(words))
        fail("send");
    return fd;
}

/// False if the other end closed.
bool receive_all(int fd, mutable_bytes into) {
    while (!into.empty()) {
        const ssize_t got = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
        if (got > 0)
            into = into.subspan(static_cast<std::size_t>(got));
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
    }
    return true;
}

/// Echoes every frame, until the port is gone.
void be_the_peers(perf::channel& talk) {
    const uri where = uri::parse(talk.read_line());
    std::vector<unique_fd> idle;
    const unique_fd active = connect_to(where);
    std::array<std::byte, 64> frame;
    // First the port's hello, whose length depends on its address.
    if (!receive_all(active.get(), mutable_bytes(frame).first(header_bytes))) return;
    std::vector<std::byte> rest(std::to_integer<std::size_t>(frame[0]));
    if (!receive_all(active.get(), rest)) return;
    while (receive_all(active.get(), mutable_bytes(frame).first(header_bytes))) {
        const auto bytes = std::to_integer<std::size_t>(frame[0]);
        if (!receive_all(active.get(), mutable_bytes(frame).subspan(header_bytes, bytes))) return;
        if (frame[8] == std::byte{bring_the_others})
            while (idle.size() < idle_peers)
                idle.push_back(connect_to(where));
        if (::send(active.get(), frame.data(), header_bytes + bytes, MSG_NOSIGNAL) < 0) return;
    }
}

double measure(std::string_view what) {
    allow_many_descriptors();
    perf::forked_peer peers(&be_the_peers);
    bench::arrivals sink;
    auto here = transport_registry::native().open("tcp://127.0.0.1:0").value();
    here->set_sink(&sink);
    peers.talk().write_line(here->address());
    const auto until = [&](std::size_t count) {
        while (sink.count < count)
            here->progress();
    };
    until(1);
    const peer_id active = sink.from;
    const std::array<std::byte, 8> bytes{};
    const const_bytes out(bytes);
    const auto round_trip = [&](std::uint64_t tag) {
        bench::copied_send op;
        const std::size_t before = sink.count;
        if (here->post_send(active, tag, gather(&out, 1), op) != posted::done) fail("post_send");
        until(before + 1);
    };
    const auto rate = [&] {
        return perf::measure_round_trips(seconds, [&] { round_trip(0); }).ops_per_s;
    };
    const double alone = what == "slowdown" ? rate() : 0;
    const std::size_t used = bench::resident_bytes();
    const std::size_t known = sink.count;
    round_trip(bring_the_others);
    until(known + idle_peers + 1);
    const std::size_t more = bench::resident_bytes() - used;
    return what == "slowdown" ? alone / rate()
                              : static_cast<double>(more) / static_cast<double>(idle_peers);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc == 2 ? argv[1] : "";
    if (what != "memory" && what != "slowdown") {
        std::fprintf(stderr, "usage: %s memory|slowdown\n", argv[0]);
        return 2;
    }
    try {
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], measure(what));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s %s: %s\n", argv[0], argv[1], e.what());
        return 1;
    }
}
