#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "perf/pair.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {
namespace {

using sum_type = int(int, int);
using count_type = std::uint32_t(std::span<const std::byte>);
using note_type = void(std::span<const std::byte>);
using noted_type = std::uint64_t();

/// Both ends poll: measures the path of a call, not how fast a thread wakes up.
engine_options polling_engine(const char* name) {
    return {.name = name, .spin = always_spin};
}

/// Serves the procedures until the measuring process closes the channel.
void serve(const request& asked, channel& talk) {
    std::uint64_t noted = 0;
    engine server(asked.uri, polling_engine("perf-server"));
    server.define<sum_type>("sum", [](int a, int b) { return a + b; });
    server.define<count_type>("count", [](std::span<const std::byte> bytes) {
        return static_cast<std::uint32_t>(bytes.size());
    });
    server.define<note_type>("note", [&](std::span<const std::byte>) { ++noted; },
                             {.run = handler::inline_});
    server.define<noted_type>("noted", [&] { return noted; });
    if (server.address().empty()) {
        throw error(
            errc::invalid,
            "\"" + asked.uri +
                "\" does not listen, but the measured peer must; example: tcp://127.0.0.1:0");
    }
    talk.write_line(server.address());
    talk.read_line();
}

}  // namespace

measurement rpc_latency(const request& asked) {
    forked_peer peer([&](channel& talk) { serve(asked, talk); });
    const std::string address = peer.talk().read_line();
    engine client(asked.uri, polling_engine("perf-client"));
    const auto there = client.lookup(address);
    const auto sum = client.procedure<sum_type>("sum").on(there);
    const auto count = client.procedure<count_type>("count").on(there);
    const std::vector<std::byte> bytes(asked.size_bytes);
    // Two ints are eight bytes of arguments.
    measurement m = client.run([&] {
        if (asked.size_bytes == 2 * sizeof(int))
            return measure_round_trips(asked.seconds, [&] { (void)sum(2, 3); });
        return measure_round_trips(asked.seconds, [&] { (void)count(bytes); });
    });
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

measurement rpc_rate(const request& asked) {
    forked_peer peer([&](channel& talk) { serve(asked, talk); });
    const std::string address = peer.talk().read_line();
    engine client(asked.uri, polling_engine("perf-client"));
    const auto count = client.procedure<count_type>("count").on(client.lookup(address));
    const std::vector<std::byte> bytes(asked.size_bytes);

    // One ULT per call in flight, each making one call after the other.
    std::uint64_t calls = 0;
    const auto run_for = [&](double seconds) {
        calls = 0;
        const auto start = clock_type::now();
        const auto until = start + std::chrono::duration<double>(seconds);
        std::vector<future<void>> callers;
        for (std::size_t i = 0; i < asked.depth; ++i) {
            callers.push_back(client.spawn([&] {
                do {
                    for (int batch = 0; batch < 64; ++batch)
                        (void)count(bytes);
                    calls += 64;
                } while (clock_type::now() < until);
            }));
        }
        for (auto& caller : callers)
            caller.get();
        return seconds_since(start);
    };
    run_for(asked.seconds * 0.2);
    const double elapsed = run_for(asked.seconds * 0.8);
    measurement m;
    m.ops_per_s = static_cast<double>(calls) / elapsed;
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

measurement post_rate(const request& asked) {
    forked_peer peer([&](channel& talk) { serve(asked, talk); });
    const std::string address = peer.talk().read_line();
    engine client(asked.uri, polling_engine("perf-client"));
    const auto there = client.lookup(address);
    const auto note = client.procedure<note_type>("note").on(there);
    const auto noted = client.procedure<noted_type>("noted").on(there);
    const std::vector<std::byte> bytes(asked.size_bytes);

    // Calls start in order, so each answer says that all before it have arrived.
    std::uint64_t posted = 0;
    const auto batch = [&] {
        for (std::size_t i = 0; i < asked.depth; ++i)
            note.post(bytes);
        posted += asked.depth;
        if (noted() != posted) throw error(errc::disconnected, "one-way calls were lost");
    };
    measurement m;
    m.ops_per_s = static_cast<double>(asked.depth) * client.run([&] {
        return measure_rate(asked.seconds * 0.2, asked.seconds * 0.8, 1, batch);
    });
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

}  // namespace amalgam::perf
