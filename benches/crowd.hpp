#pragma once

#include <cstddef>
#include <string>

namespace amalgam::bench {

constexpr std::size_t most_clients = 1024;

/// What a server with many clients does and holds.
struct crowd {
    double calls_per_s = 0;   ///< Of all clients together.
    double server_bytes = 0;  ///< Its memory (proportional set size), with all connected.
};

/// One server with `clients` client processes at a port of `uri`. The server has the second
/// processor, all clients share the first; each has 16 calls of 64 B in flight.
/// Precondition: this process has one thread; at most most_clients.
crowd measure_crowd(const std::string& uri, std::size_t clients);

constexpr int crowd_in_flight = 16;
constexpr std::size_t crowd_argument_bytes = 64;

}  // namespace amalgam::bench
