#pragma once

#include <memory>

#include "directory/membership/anti_entropy.hpp"
#include "directory/membership/discovery.hpp"
#include "directory/membership/dissemination.hpp"
#include "directory/membership/failure_detector.hpp"
#include "directory/membership/id_claims.hpp"
#include "directory/membership/joining.hpp"
#include "directory/membership/peers.hpp"
#include "directory/membership/probes.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"
#include "directory/queries/broadcast_queries.hpp"
#include "directory/queries/ring_queries.hpp"

namespace amalgam::detail {

/// One server's membership in the ring of a network's directory servers. It knows all others,
/// informs and queries them over trees, and detects when its successors in key order fail. This
/// object only owns the parts and joins them to each other.
///
/// Locks: each part has its own. While the lock of the id claims or of the peers is held, that of
/// the view may be taken; while that is held, that of the runtime. No other two of
/// these are held at once.
/// Owner:   shared with running handlers and ULTs.
/// Threads: any.
class directory_ring : public std::enable_shared_from_this<directory_ring> {
public:
    /// `here` is asked for this server's resources, and told of each id range it owns. It may end
    /// before this does.
    directory_ring(engine& on, const ring_options& options,
                   std::shared_ptr<const role_policy> lets_in, std::weak_ptr<ring_user> here);

    /// Joins, in its own ULT, if the options name others; claims a first range.
    void start();
    void stop() noexcept { runtime_.stop(); }

    const membership_view& view() const noexcept { return view_; }
    ring_peers& peers() noexcept { return peers_; }
    id_claims& ids() noexcept { return ids_; }
    ring_queries& queries() noexcept { return queries_; }

private:
    void sign_medium();
    void take_packet(const_bytes bytes, const identity& signer) noexcept;

    ring_runtime runtime_;
    membership_view view_;
    ring_peers peers_;
    dissemination news_;
    probes probes_;
    anti_entropy comparing_;
    id_claims ids_;
    joining joining_;
    failure_detector detector_;
    discovery discovery_;
    broadcast_queries broadcasts_;
    ring_queries queries_;
    counter& packets_refused_;  // Malformed, or not of a member.
    counter& packets_old_;      // Stale or repeated.
    counter& packets_dropped_;  // Too many.
};

}  // namespace amalgam::detail
