// A call by a plain thread: one that is no execution stream, and so waits apart from the engine
// that brings the answer. Two processes over shared memory.
//   thread_call SIZE SECONDS    of argument
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

using count_type = std::uint32_t(std::span<const std::byte>);
constexpr const char* uri = "shm://";

void serve(perf::channel& talk) {
    engine there(uri, {.name = "server", .spin = always_spin});
    there.define<count_type>("count", [](std::span<const std::byte> bytes) {
        return static_cast<std::uint32_t>(bytes.size());
    });
    talk.write_line(there.address());
    talk.read_line();
}

perf::measurement measure(std::size_t size, double seconds) {
    perf::forked_peer server(&serve);
    // The engine's thread shares this process's processor with the caller, so it must not keep it.
    engine here(uri, {.name = "client"});
    const auto count =
        here.procedure<count_type>("count").on(here.lookup(server.talk().read_line()));
    const std::vector<std::byte> bytes(size);
    perf::measurement m;
    std::thread caller(
        [&] { m = perf::measure_round_trips(seconds, [&] { (void)count(bytes); }); });
    caller.join();
    m.test = "thread-call";
    m.uri = uri;
    m.size_bytes = size;
    m.bytes_per_s = m.ops_per_s * static_cast<double>(size);
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    const long size = argc == 3 ? std::atol(argv[1]) : -1;
    const double seconds = argc == 3 ? std::atof(argv[2]) : 0;
    if (size < 0 || seconds <= 0) {
        std::fprintf(stderr, "usage: %s SIZE SECONDS\n", argv[0]);
        return 2;
    }
    try {
        std::printf("%s\n",
                    perf::to_json(measure(static_cast<std::size_t>(size), seconds)).c_str());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
