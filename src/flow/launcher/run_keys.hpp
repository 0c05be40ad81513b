#pragma once

#include <string>
#include <vector>

#include <amalgam/flow/config.hpp>

/// Keys that a run makes by itself, so that it is encrypted between hosts and nobody else gets in.
///
/// Each process makes one that never leaves it (temporary_key), and tells the others its
/// fingerprint where it would tell them its address: by the launcher's control line, which goes
/// through ssh, or by PMIx. So nothing secret travels, and nothing is written to a file, an
/// argument or the environment.
namespace amalgam::detail {

/// Whether the processes tell each other keys: an endpoint encrypts, as tcp+tls and ofi+…+tls do,
/// and names no credentials.
bool makes_keys(const flow_config& config);

/// Makes each endpoint of tcp, ofi and ucx that other hosts may reach one that encrypts: tcp+tls,
/// ofi+…+tls. Leaves those that say `insecure` or name credentials of the user's, and all if the
/// processes find each other without us. On loopback, where other users of the host may connect,
/// one of tcp+tls is as it is written. So is mpi+static, which only ranks of one job reach, and
/// which has no `insecure` by which a user could say no: decision 0019.
flow_config with_keys(flow_config config);

/// The port by which a process that listens at `own` calls one that listens at `endpoint`: with the
/// user's credentials, its own if it has some, where these are asked for; else with the run's keys.
std::string calling_port(const std::string& own, const std::string& endpoint);

/// The address of that process, for a lookup by that port, if several of `ports` encrypt in the
/// same way; the first of them is where the caller listens. The run's keys, which have no name, are
/// `credentials=`.
std::string called_address(const std::vector<std::string>& ports, const std::string& endpoint,
                           const std::string& address);

/// Lets each endpoint that other hosts may reach say `insecure`, in place of keys, and no longer
/// encrypt. Leaves those that with_keys() leaves.
flow_config without_keys(flow_config config);

}  // namespace amalgam::detail
