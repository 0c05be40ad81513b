#pragma once

#include <string>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/dissemination.hpp"
#include "directory/membership/id_claims.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"

namespace amalgam::detail {

/// Becomes a member of the ring of others, and takes others into this one.
///
/// Threads: any.
class joining {
public:
    joining(ring_runtime& runtime, membership_view& view, dissemination& news, id_claims& ids);
    void start();

    /// Joins all addresses of the options. Parks.
    void join();
    /// Parks. Throws if nobody there lets it in.
    void join(const std::string& address);
    /// Tries the addresses of the options that no member has. Parks.
    void rejoin_lost();
    /// Throws error{invalid} if this server listens at no address reachable from other hosts.
    void check_can_be_reached() const;

private:
    std::vector<member> asked_for_members();
    void joined(member who);

    ring_runtime& runtime_;
    membership_view& view_;
    dissemination& news_;
    id_claims& ids_;
    const procedure<in_ring::members> members_;
    const procedure<in_ring::join> join_;
};

}  // namespace amalgam::detail
