// What the two sources of mpi_ranks have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace amalgam::processes {

constexpr std::size_t served_bytes = std::size_t{3} << 20;

/// Where ranks meet; with keys, over TLS.
inline std::string scheme = "mpi+static";
inline std::string own_uri = "mpi+static";

inline std::string address_of(int rank) {
    return scheme + "://" + std::to_string(rank);
}

inline void expect(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
}

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        made[i] = static_cast<std::byte>((i * 31 + (i >> 8) + seed) & 0xff);
    return made;
}

/// Calls with short and long arguments, and bulks both ways, between engines of all ranks.
void call(int own, int size);
/// The first stops the last one in the midst of its calls, gives it up when its keepalive says so,
/// talks to the others meanwhile, and calls it anew when it goes on.
void stop(int own, int size);
/// Each makes a key, as `amalgam run` has its processes do. The last is of another run: nobody
/// trusts its key. Needs no KEYS.
void strange(int own, int size);

}  // namespace amalgam::processes
