#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "perf/pair.hpp"

namespace amalgam::bench {

/// How a message may come to the code that counts it, which is not signed.
enum class way : unsigned {
    rpc,     ///< A one-way call: the code is there.
    cached,  ///< Injected, where it was before.
    always,  ///< Injected with every message.
    ring     ///< The same, put into memory that the target polls.
};

inline const std::vector<std::size_t> payloads{1,    4,     16,    64,     256,    1024,
                                               4096, 16384, 65536, 262144, 1048576};

/// Medians of many short turns.
struct way_figures {
    double value;  ///< Of one way.
    double ratio;  ///< To the first of the ways, in the same turn.
};

/// Two processes, pinned to a processor each, which poll, and send each other messages to be
/// counted in all of these ways, in turn: what slows the machine slows them all.
class injection_pair {
public:
    explicit injection_pair(const std::string& uri);
    injection_pair(const injection_pair&) = delete;
    ~injection_pair();

    /// Seconds for a message of so many bytes there and one back.
    std::vector<way_figures> latencies(const std::vector<way>& ways, std::size_t bytes,
                                       double seconds);
    /// Messages per second, of which only the last of a batch is waited for.
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
