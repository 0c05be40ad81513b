// What memory and kernel alone can do: copies another process's bytes into this one.
//   raw_memory copy  SIZE SECONDS    memcpy from memory that both have mapped
//   raw_memory cross SIZE SECONDS    process_vm_readv, one call each
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

[[noreturn]] void fail(const char* what) {
    throw error(status{errc::internal, errno}, std::string(what) + " failed");
}

/// Until the measuring process ends. As in all other tests, a polling peer shares the machine.
void poll_until_closed(perf::channel& talk) {
    for (unsigned idle = 0;; ++idle)
        if (idle % (1u << 14) == 0 && talk.closed()) return;
}

perf::measurement copy(std::size_t size, double seconds) {
    const int fd = ::memfd_create("bench", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) fail("memfd_create");
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail("mmap");
    perf::forked_peer peer([&](perf::channel& talk) {
        std::memset(at, 0x5a, size);
        talk.write_line("ready");
        poll_until_closed(talk);
    });
    peer.talk().read_line();
    std::vector<std::byte> into(size);
    return perf::measure_round_trips(seconds, [&] { std::memcpy(into.data(), at, size); });
}

perf::measurement cross(std::size_t size, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) {
        std::vector<std::byte> memory(size, std::byte{0x5a});
        talk.write_line(std::to_string(::getpid()));
        talk.write_line(std::to_string(reinterpret_cast<std::uintptr_t>(memory.data())));
        poll_until_closed(talk);
    });
    const auto pid = static_cast<pid_t>(std::stol(peer.talk().read_line()));
    auto* const at = reinterpret_cast<void*>(std::stoull(peer.talk().read_line()));
    std::vector<std::byte> into(size);
    return perf::measure_round_trips(seconds, [&] {
        const iovec local{into.data(), size};
        const iovec remote{at, size};
        if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(size))
            fail("process_vm_readv");
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view test = argc == 4 ? argv[1] : "";
    if (test != "copy" && test != "cross") {
        std::fprintf(stderr, "usage: %s copy|cross SIZE SECONDS\n", argv[0]);
        return 2;
    }
    const auto size = static_cast<std::size_t>(std::atoll(argv[2]));
    auto m = test == "copy" ? copy(size, std::atof(argv[3])) : cross(size, std::atof(argv[3]));
    m.test = test;
    m.uri = "raw-memory";
    m.size_bytes = size;
    m.bytes_per_s = m.ops_per_s * static_cast<double>(size);
    std::puts(perf::to_json(m).c_str());
}
