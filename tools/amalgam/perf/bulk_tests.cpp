#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/engine.hpp>

#include "perf/pair.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {
namespace {

engine_options polling(const char* name) {
    return {.name = name, .spin = always_spin};
}

/// Exposes its memory, from the heap or a cache, until the measuring process closes the channel.
void serve(const request& asked, bool pooled, channel& talk) {
    // Declared before the engine, so that its handler has ended when these are destroyed, even by
    // an exception.
    std::optional<bulk_cache> cache;
    bulk_buffer buffer;
    std::vector<std::byte> memory;
    exposed shown;
    engine server(asked.uri, polling("perf-server"));
    if (pooled) {
        buffer = cache.emplace(server).take(asked.size_bytes);
    } else {
        memory.assign(asked.size_bytes, std::byte{0x5a});
        shown = expose(server, memory, access::read_write);
    }
    server.define("memory", [&] { return pooled ? buffer.descriptor() : shown.descriptor(); });
    if (server.address().empty()) {
        throw error(
            errc::invalid,
            "\"" + asked.uri +
                "\" does not listen, but the measured peer must; example: tcp://127.0.0.1:0");
    }
    talk.write_line(server.address());
    talk.read_line();
}

using start_one = std::function<future<void>(const bulk& there, mutable_bytes local)>;

/// Moves `size_bytes` at a time, `depth` transfers in flight, between memory of both processes.
measurement bulk_bandwidth(const request& asked, bool pooled, const start_one& start) {
    forked_peer peer([&](channel& talk) { serve(asked, pooled, talk); });
    const std::string address = peer.talk().read_line();
    engine client(asked.uri, polling("perf-client"));
    const bulk there = client.procedure<bulk()>("memory").on(address)();
    bulk_cache cache(client);
    std::vector<bulk_buffer> buffers;
    std::vector<std::vector<std::byte>> memory;
    std::vector<mutable_bytes> local;
    for (std::size_t i = 0; i < asked.depth; ++i) {
        if (pooled) {
            buffers.push_back(cache.take(asked.size_bytes));
            local.push_back(buffers.back().bytes());
        } else {
            local.emplace_back(memory.emplace_back(asked.size_bytes, std::byte{0x5a}));
        }
    }

    measurement m;
    m.ops_per_s = client.run([&] {
        std::vector<future<void>> flying(asked.depth);
        std::size_t next = 0;
        const double rate =
            measure_rate(asked.seconds * 0.2, asked.seconds * 0.8, asked.depth, [&] {
                if (flying[next].valid()) flying[next].get();
                flying[next] = start(there, local[next]);
                next = (next + 1) % asked.depth;
            });
        for (future<void>& each : flying)
            if (each.valid()) each.get();
        return rate;
    });
    m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size_bytes);
    return m;
}

future<void> pull(const bulk& there, mutable_bytes into) {
    return there.start_pull(into);
}

}  // namespace

measurement bulk_pull(const request& asked) {
    return bulk_bandwidth(asked, false, &pull);
}

measurement bulk_pull_pooled(const request& asked) {
    return bulk_bandwidth(asked, true, &pull);
}

measurement bulk_push(const request& asked) {
    return bulk_bandwidth(
        asked, false, [](const bulk& there, mutable_bytes from) { return there.start_push(from); });
}

}  // namespace amalgam::perf
