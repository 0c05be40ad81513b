#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/ult_report.hpp>

#include "flow/launcher/pmix.hpp"
#include "flow/nodes/local_nodes.hpp"

namespace amalgam::detail {

/// Thrown when the user is informed elsewhere: run_main() then prints nothing.
class told_error : public error {
public:
    using error::error;
};

/// How one process of a run learns its place and the other processes' addresses.
///
/// Threads: one at a time.
class address_exchange {
public:
    virtual ~address_exchange() = default;

    const flow_config& config() const noexcept { return config_; }
    const std::string& group() const noexcept { return group_; }
    std::size_t replica() const noexcept { return replica_; }
    std::string label() const { return process_label(*config_.find(group_), replica_); }

    /// If the run makes keys (run_keys.hpp): this process's, which trusts those of all processes
    /// and nobody else's; else null. Call it once, before meet(). Waits, and fails, as meet().
    virtual std::shared_ptr<const credentials> meet_keys(std::chrono::milliseconds limit) = 0;
    /// The keys of all, by the config's groups, then by replica, once meet_keys() has returned.
    /// Empty if the run makes none.
    const std::vector<std::vector<key_fingerprint>>& keys() const noexcept { return keys_; }
    /// Publishes the own address and returns all: by the config's groups, then by replica. `graph`
    /// is the fingerprint all must share. A launcher ends the run if a process is missing after
    /// `limit`; ranks wait as long as their starter does.
    /// Failure: throws error{disconnected} if the other side is gone, told_error if another process
    ///          was refused.
    virtual std::vector<std::vector<std::string>> meet(const std::string& own_address,
                                                       const std::string& graph,
                                                       std::chrono::milliseconds limit) = 0;
    /// True if somebody else tells the user why the run was refused or failed; else the program
    /// must.
    virtual bool tell_refusal(const std::string& sentence) = 0;
    virtual bool report_failure(const run_failure& why) = 0;
    /// Checkpoints of this run.
    struct checkpoint_plan {
        std::string folder;          ///< Empty: there are none.
        std::uint64_t restores = 0;  ///< Go on from that one; 0: from the start.
        std::string restart;         ///< Why the run was started again; empty: it was not.
    };
    const checkpoint_plan& checkpoints() const noexcept { return checkpoints_; }
    /// `begin` is called with each checkpoint's number, on another thread, until this is called
    /// with an empty function. Before meet().
    virtual void on_checkpoint(std::function<void(std::uint64_t)> /*begin*/) {}
    /// This process's part of it is written, or cannot be. From any thread.
    virtual void tell_saved(std::uint64_t /*number*/, const result<void>& /*written*/) {}
    /// Interval at which this process should report its nodes' progress; 0: never.
    virtual std::chrono::milliseconds report_interval() const { return {}; }
    /// Called a last time at the end. From any thread.
    virtual void tell_report(const run_report&) {}
    /// What is told when somebody looks at the run.
    struct current_status {
        run_report report;
        metric_snapshot metrics;
        std::string drawing;  ///< graph::json()
        std::optional<ult_report> ults{};
    };
    virtual void tell_status(const current_status&) {}
    enum class wake { to_report, to_tell_status, never };
    /// Waits until the next report is due, or somebody looks; `never` once `stop` is requested, and
    /// where nobody asks.
    virtual wake next_wake(const std::stop_token&) { return wake::never; }
    /// Whether who looks now asks for the ULTs, too. Once for each time.
    virtual bool take_ults_asked() { return false; }
    /// Whether somebody has looked.
    virtual bool status_was_asked() const { return false; }

protected:
    flow_config config_;
    std::string group_;
    std::size_t replica_ = 0;
    checkpoint_plan checkpoints_;
    std::vector<std::vector<key_fingerprint>> keys_;
};

/// Determined by the environment: started by `amalgam run`; or one group of AMALGAM_CONFIG (a file,
/// or the JSON itself), by hand (AMALGAM_GROUP, AMALGAM_REPLICA) or by mpirun or srun, whose n-th
/// rank is the config's n-th process; nullptr if none of these.
/// Failure: throws error{invalid} or {not_found} if the information is incomplete.
std::unique_ptr<address_exchange> address_exchange_from_environment();

/// The n-th process of a config: its group's index, and its replica.
std::pair<std::size_t, std::size_t> nth_process(const flow_config& config, std::size_t n);
/// Number of processes in the config.
std::size_t process_count(const flow_config& config);
/// "3 (G1, G2.0, G2.1)"
std::string list_processes(const flow_config& config);
/// Failure: throws error{invalid} at rank 0, told_error at others, if the number of ranks differs
///          from the number of processes of `origin`; the message contains the right command.
void check_rank_count(const job_rank& here, const flow_config& config, const std::string& origin);

}  // namespace amalgam::detail
