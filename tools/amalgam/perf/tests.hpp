#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "perf/measurement.hpp"

namespace amalgam::perf {

/// Parameters of a test from the command line; 0 means the test's own default.
struct request {
    std::string uri;
    std::size_t size_bytes = 0;
    std::size_t depth = 0;
    double seconds = 2;
};

/// The quantity that a test measures.
enum class figure { time, rate, bandwidth };

/// A test known to `amalgam perf`; forks its own peer.
struct perf_test {
    std::string_view name;
    std::string_view what;
    std::size_t default_size_bytes;
    std::size_t default_depth;
    measurement (*run)(const request&);
    figure shows;
    /// The corresponding question for a bare library, see benches/peers/peer.hpp; empty if none.
    std::string_view peer_test;
};

measurement message_latency(const request&);  ///< Full round trip of a message, both ends polling.
measurement put_bandwidth(const request&);    ///< One-sided writes, `depth` in flight.
measurement get_bandwidth(const request&);    ///< One-sided reads, likewise.
measurement put_block_bandwidth(const request&);  ///< The same between memory of allocate().
measurement get_block_bandwidth(const request&);
measurement rpc_latency(const request&);       ///< Full round trip of a typed call, ULT handler.
measurement rpc_rate(const request&);          ///< Typed calls with `depth` in flight.
measurement post_rate(const request&);         ///< One-way calls, a call behind each `depth`.
measurement bulk_pull(const request&);         ///< Pulls from private memory, `depth` in flight.
measurement bulk_pull_pooled(const request&);  ///< Between buffers of caches, likewise.
measurement bulk_push(const request&);         ///< Pushes to private memory, likewise.
measurement stream_rate(const request&);       ///< Items through a flow channel between two groups.

/// All tests, in the order of the help text.
std::span<const perf_test> all_tests();

}  // namespace amalgam::perf
