#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/dissemination.hpp"
#include "directory/membership/peers.hpp"
#include "directory/membership/probes.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Compares what two servers know, so that each learns what news it missed. A server that was cut
/// off believes all others gone, so departures it reports are probed before they are believed.
///
/// Threads: any. Its lock guards the departures to be probed.
class anti_entropy {
public:
    anti_entropy(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                 dissemination& news, probes& pings);
    void start();

    /// Parks.
    void compare_with(std::uint64_t key);

private:
    ring_news compared(ring_news theirs);
    void learn(const ring_news& theirs);
    void probe_departed();

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    dissemination& news_;
    probes& probes_;
    const procedure<in_ring::compare> compare_;

    std::mutex lock_;  // Never held across a wait. Nothing else is locked meanwhile.
    std::map<std::uint64_t, std::uint32_t> said_gone_;  // Versions by key.
    bool probing_ = false;
};

}  // namespace amalgam::detail
