#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "perf/pair.hpp"

namespace amalgam::bench {

/// Ways to deliver a message to the code that counts it; images are unsigned.
enum class way : unsigned {
    rpc,     ///< A one-way call: the code is already there.
    cached,  ///< Injected, with the image cached.
    always,  ///< Injected, with the image in every message.
    ring     ///< The same, put into memory that the target polls.
};

inline const std::vector<std::size_t> payloads{1,    4,     16,    64,     256,    1024,
                                               4096, 16384, 65536, 262144, 1048576};

/// Medians of many short turns.
struct way_figures {
    double value;  ///< For one way.
    double ratio;  ///< Relative to the first of the ways, in the same turn.
};

/// Two processes, each pinned to a processor and polling, that exchange counted messages in all of
/// these ways, in turn: disturbances by the machine affect all alike.
class injection_pair {
public:
    explicit injection_pair(const std::string& uri);
    injection_pair(const injection_pair&) = delete;
    ~injection_pair();

    /// Seconds per round trip of messages of that size.
    std::vector<way_figures> latencies(const std::vector<way>& ways, std::size_t bytes,
                                       double seconds);
    /// Messages per second; only the last of a batch is answered.
    std::vector<way_figures> rates(const std::vector<way>& ways, std::size_t bytes, double seconds);
    /// Seconds for a call of a signed image of 4 KiB that the target does not know: the median.
    double first_use(double seconds);

private:
    class end_point;

    template <typename Sample>
    std::vector<way_figures> in_turn(const std::vector<way>& ways, double seconds, Sample sample);

    std::unique_ptr<perf::forked_peer> other_;
    std::unique_ptr<end_point> here_;
};

}  // namespace amalgam::bench
