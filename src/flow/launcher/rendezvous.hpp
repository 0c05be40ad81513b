#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/flow/config.hpp>
#include <amalgam/flow/report.hpp>

#include "flow/launcher/pmix.hpp"
#include "flow/part.hpp"

namespace amalgam::detail {

/// Thrown once somebody else has told the user, or will: run_main() then prints nothing.
class told_error : public error {
public:
    using error::error;
};

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
    /// `graph` is the fingerprint all must share. A launcher ends the run when somebody is not
    /// there within `limit`; ranks wait for as long as what started them does.
    /// Failure: throws error{disconnected} when there is nobody to learn from any more,
    ///          told_error when another process was refused.
    virtual std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                                       const std::string& graph,
                                                       std::chrono::milliseconds limit) = 0;
    /// Somebody else tells the user why the run was refused, or has failed: true. False: nobody
    /// does, so the program has to.
    virtual bool tell_refusal(const std::string& sentence) = 0;
    virtual bool tell_failure(const run_failure& why) = 0;
    /// How often somebody wants to hear how far this process's nodes have come; 0: never.
    virtual std::chrono::milliseconds report_interval() const { return {}; }
    /// The last one at the end. From any thread.
    virtual void tell_report(const run_report&) {}

protected:
    flow_config config_;
    std::string group_;
    std::size_t replica_ = 0;
};

/// What the environment says: started by `amalgam run`, or as one group of AMALGAM_CONFIG (a file,
/// or the JSON itself) by hand (AMALGAM_GROUP, AMALGAM_REPLICA) or by mpirun or srun, whose n-th
/// rank is the config's n-th process; nullptr when none of them.
/// Failure: throws error{invalid} or {not_found} when it does not say enough.
std::unique_ptr<rendezvous> rendezvous_from_environment();

/// The n-th process of a config: its group's index, and its replica.
std::pair<std::size_t, std::size_t> nth_process(const flow_config& config, std::size_t n);
/// How many there are.
std::size_t process_count(const flow_config& config);
/// "3 (G1, G2.0, G2.1)"
std::string list_processes(const flow_config& config);
/// Failure: throws error{invalid} at rank 0, told_error at others, when there are not as many
///          ranks as `origin`'s processes; the sentence has the command that would be right.
void check_rank_count(const job_rank& here, const flow_config& config, const std::string& origin);

}  // namespace amalgam::detail
