#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "directory/membership/dissemination.hpp"
#include "directory/membership/joining.hpp"
#include "directory/membership/probes.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Notices who is gone. Each server probes the next two of the ring every period. A server that
/// nobody reaches is suspected, and counts as gone unless it refutes that in time.
///
/// Threads: any. Its lock guards which servers are being probed.
class failure_detector {
public:
    failure_detector(ring_runtime& runtime, membership_view& view, dissemination& news,
                     probes& pings, joining& joins);

    /// Starts its ULT, unless that runs.
    void start();

private:
    void watch_successors();
    /// True: it is suspected, and should be probed again soon.
    bool probe(const member& next);
    bool suspect(const member& who, const std::vector<std::uint64_t>& by);
    void warn(const member& who);

    ring_runtime& runtime_;
    membership_view& view_;
    dissemination& news_;
    probes& probes_;
    joining& joining_;

    std::mutex lock_;  // Never held across a wait. Nothing else is locked meanwhile.
    bool runs_ = false;
    std::set<std::uint64_t> probed_;  // By a ULT now.
};

}  // namespace amalgam::detail
