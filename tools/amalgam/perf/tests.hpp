#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "perf/measurement.hpp"

namespace amalgam::perf {

/// What the command line asks of a test; 0 means the test's own default.
struct request {
    std::string uri;
    std::size_t size_bytes = 0;
    std::size_t depth = 0;
    double seconds = 2;
};

/// What a test is about.
enum class figure { time, rate, bandwidth };

/// A test `amalgam perf` knows: each forks its own peer.
struct perf_test {
    std::string_view name;
    std::string_view what;
    std::size_t default_size_bytes;
    std::size_t default_depth;
    measurement (*run)(const request&);
    figure shows;
    /// What a bare library is asked for comparison, see benches/peers/peer.hpp; empty where none
    /// has the same.
    std::string_view peer_test;
};

measurement message_latency(const request&);  ///< Full round trip of a message, both ends polling.
measurement put_bandwidth(const request&);    ///< One-sided writes, `depth` in flight.
measurement get_bandwidth(const request&);    ///< One-sided reads, likewise.
measurement put_block_bandwidth(const request&);  ///< The same between memory of allocate().
measurement get_block_bandwidth(const request&);
measurement rpc_latency(const request&);       ///< Full round trip of a typed call, ULT handler.
measurement rpc_rate(const request&);          ///< Typed calls with `depth` in flight.
measurement bulk_pull(const request&);         ///< Pulls from private memory, `depth` in flight.
measurement bulk_pull_pooled(const request&);  ///< Between buffers of caches, likewise.
measurement bulk_push(const request&);         ///< Pushes to private memory, likewise.
measurement stream_rate(const request&);       ///< Items through a flow channel between two groups.

/// All of them, in the order of the help text.
std::span<const perf_test> all_tests();

}  // namespace amalgam::perf
