// The lower bound for anything over shared memory: two processes, two rings of one-cache-line slots
// that carry the payload inline, no library.
//   shared_ring SIZE SECONDS    SIZE up to 48
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <sys/mman.h>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

struct alignas(64) slot {
    std::atomic<std::uint64_t> turn;
    std::byte payload[48];
};
constexpr std::uint64_t slots = 256;

struct ring {
    slot at[slots];
};

void put(ring& to, std::uint64_t turn, const std::byte* from, std::size_t bytes) {
    slot& s = to.at[turn % slots];
    std::memcpy(s.payload, from, bytes);
    s.turn.store(turn + 1, std::memory_order_release);
}

/// Spins until it is `turn`; calls `give_up` now and then.
template <typename GiveUp>
bool get(ring& from, std::uint64_t turn, std::byte* into, std::size_t bytes, GiveUp&& give_up) {
    slot& s = from.at[turn % slots];
    for (unsigned idle = 0; s.turn.load(std::memory_order_acquire) != turn + 1;)
        if (++idle % (1u << 20) == 0 && give_up()) return false;
    std::memcpy(into, s.payload, bytes);
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3 || std::atoi(argv[1]) > 48) {
        std::fprintf(stderr, "usage: %s SIZE SECONDS (SIZE up to 48)\n", argv[0]);
        return 2;
    }
    const auto size = static_cast<std::size_t>(std::atoi(argv[1]));
    void* memory = ::mmap(nullptr, 2 * sizeof(ring), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    auto* rings = new (memory) ring[2]{};

    perf::forked_peer peer([&](perf::channel& talk) {
        std::byte bytes[48];
        for (std::uint64_t turn = 0;; ++turn) {
            if (!get(rings[0], turn, bytes, size, [&] { return talk.closed(); })) return;
            put(rings[1], turn, bytes, size);
        }
    });
    std::byte bytes[48] = {};
    std::uint64_t turn = 0;
    auto m = perf::measure_round_trips(std::atof(argv[2]), [&] {
        put(rings[0], turn, bytes, size);
        get(rings[1], turn, bytes, size, [] { return false; });
        ++turn;
    });
    m.test = "message-latency";
    m.uri = "shared-ring";
    m.size_bytes = size;
    m.bytes_per_s = 2 * m.ops_per_s * static_cast<double>(size);
    std::puts(perf::to_json(m).c_str());
}
