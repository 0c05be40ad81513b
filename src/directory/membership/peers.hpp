#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Whether the address is reachable only from this host, or means something else on others.
inline bool is_local(std::string_view address) {
    return address.starts_with("shm:");
}

/// The connections to other servers of the ring.
///
/// Threads: any. Its lock guards the peers reached so far.
class ring_peers {
public:
    ring_peers(ring_runtime& runtime, membership_view& view);

    /// Parks only to learn who is there, where directory_roles ask for it; whether the server is
    /// alive shows in the calls. Empty if it is unknown.
    std::optional<peer> reach(std::uint64_t key,
                              std::chrono::nanoseconds within = std::chrono::seconds(5));
    /// Whether that server, and not another, answers there. Parks.
    bool is_at(const peer& there, std::uint64_t key);
    /// The next reach() looks the server up anew.
    void drop(std::uint64_t key);
    /// The connection to that peer is lost: its server is looked up anew.
    void forget(const peer& lost);

    /// A ping, to be called.
    auto ping(const peer& there, std::chrono::nanoseconds within) const {
        return ping_.on(there).within(within);
    }

private:
    ring_runtime& runtime_;
    membership_view& view_;
    const procedure<in_ring::ping> ping_;

    std::mutex lock_;  // Never held across a wait. The view may be locked meanwhile.
    std::unordered_map<std::uint64_t, peer> reached_;  // By key; only members.
};

}  // namespace amalgam::detail
