#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/flow/config.hpp>

#include "flow/part.hpp"

namespace amalgam::detail {

/// How one process of a run learns which part it is and where the others are.
///
/// Threads: one at a time.
class rendezvous {
public:
    virtual ~rendezvous() = default;

    const flow_config& config() const noexcept { return config_; }
    const std::string& group() const noexcept { return group_; }
    std::size_t replica() const noexcept { return replica_; }
    std::string label() const { return process_label(*config_.find(group_), replica_); }

    /// Tells the own address and learns all: by the config's groups, then by replica.
    /// `graph` is the fingerprint all must share.
    /// Failure: throws error{disconnected} when there is nobody to learn from any more.
    virtual std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                                       const std::string& graph) = 0;
    /// Somebody else tells the user why the run was refused, or has failed: true. False: nobody
    /// does, so the program has to.
    virtual bool tell_refusal(const std::string& sentence) = 0;
    virtual bool tell_failure(const run_failure& why) = 0;

protected:
    flow_config config_;
    std::string group_;
    std::size_t replica_ = 0;
};

/// What the environment says: started by `amalgam run`, or as one group by hand (AMALGAM_CONFIG,
/// AMALGAM_GROUP, AMALGAM_REPLICA); nullptr when neither.
/// Failure: throws error{invalid} or {not_found} when it does not say enough.
std::unique_ptr<rendezvous> rendezvous_from_environment();

}  // namespace amalgam::detail
