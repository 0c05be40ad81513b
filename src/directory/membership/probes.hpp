#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/dissemination.hpp"
#include "directory/membership/peers.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/suspicions.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Checks whether other servers are alive, as SWIM does: pings them, and asks others to ping those
/// that do not answer. All functions park.
///
/// Threads: any. Its lock guards how far this server trusts its own probes.
class probes {
public:
    /// `differs`: that server answered, and does not know the same members. It may park.
    probes(ring_runtime& runtime, membership_view& view, ring_peers& peers, dissemination& news,
           std::function<void(std::uint64_t)> differs);
    void start();

    /// `suspected`: the version in which it is suspected, so that it can refute that, or 0.
    sign ping(const member& who, std::uint32_t suspected, std::chrono::nanoseconds within);
    /// Asks others to ping it. Alive if any of them reaches it. The keys of those that do not are
    /// added to `confirmed`.
    sign ping_through_others(const member& who, std::uint32_t suspected,
                             std::chrono::nanoseconds within,
                             std::vector<std::uint64_t>& confirmed);
    /// Whether nobody reaches it: neither this server nor others.
    bool is_gone(const member& who);

    /// A ping was answered in time.
    void succeeded();
    /// Longer than `time` while this server misses what it should hear.
    std::chrono::nanoseconds scaled(std::chrono::nanoseconds time) const;

private:
    alive_answer pinged(std::uint64_t by, std::uint32_t suspected);
    sign asked_to_ping(std::uint64_t who, std::uint32_t suspected);
    std::vector<std::uint64_t> some_helpers(std::uint64_t without);
    void failed();

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    dissemination& news_;
    const std::function<void(std::uint64_t)> differs_;
    const procedure<in_ring::ping_req> ping_req_;

    mutable std::mutex lock_;  // Never held across a wait. Nothing else is locked meanwhile.
    local_health health_;
};

}  // namespace amalgam::detail
