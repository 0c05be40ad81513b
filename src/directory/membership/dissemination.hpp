#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "directory/membership/peers.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Takes news of members into the view, and spreads it over trees.
///
/// Threads: any. Its lock guards the news that waits to be sent.
class dissemination {
public:
    struct observers {
        /// Members that were heard of, known or not, proper or not.
        std::function<void(const std::vector<member>&)> heard;
        std::function<void()> met;  ///< Some were new, or in a new version.
    };

    dissemination(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                  observers observe);
    void start();

    /// Returns what was unknown.
    ring_news learn(const ring_news& news);
    /// Tells all other servers soon, together with other news by then.
    void tell_all(const ring_news& news);
    /// Tells that server only. Parks.
    void tell(const peer& there, std::uint64_t key, const ring_news& news);
    /// The server is gone: tells all, unless that is known.
    void remove(const departure& what);
    /// Others took this server for gone: tells all that it is here.
    void refute();
    /// Parks until this server has heard of any other; false on timeout.
    bool wait_until_met(std::chrono::nanoseconds at_most) { return has_met_.wait_for(at_most); }

private:
    void told(ring_part part, ring_news news);
    void tell_now();
    void pass_on(const ring_part& part, const ring_news& news);

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    const observers observe_;
    const procedure<in_ring::tell> tell_;
    event has_met_;

    std::mutex lock_;  // Never held across a wait. Nothing else is locked meanwhile.
    ring_news untold_;
    bool telling_ = false;
};

}  // namespace amalgam::detail
