#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam {

/// One group of a run: its name, and the endpoints its processes listen at.
struct group_config {
    std::string name;  ///< Unique in the config.
    /// One URI per process (replica); never empty.
    std::vector<std::string> endpoints;
    /// Execution streams (OS threads) per process; 0: chosen by the process.
    unsigned threads = 0;
    /// Environment variables set for the group's processes, in this order.
    std::vector<std::pair<std::string, std::string>> env;
    /// Hosts where the launcher starts the processes over ssh, in ssh's notation ("node7",
    /// "me@node7"). An empty string or an empty list means this host.
    std::vector<std::string> hosts{};
    /// Further arguments of the program in this group.
    std::vector<std::string> arguments{};
    /// Shell text before the program: "taskset -c 0-3", or "export OMP_NUM_THREADS=4;".
    std::string pre_command{};

    /// Host of that replica; empty means this host.
    std::string host(std::size_t replica) const { return hosts.empty() ? "" : hosts[replica]; }
    std::size_t replicas() const noexcept { return endpoints.size(); }
    friend bool operator==(const group_config&, const group_config&) = default;
};

/// The groups a graph is spread over, and their endpoints. Written as JSON:
///
///     {"groups": {
///         "G1": {"endpoint": "tcp://127.0.0.1:0"},
///         "G2": {"endpoint": "tcp://127.0.0.1:0", "replicas": 2, "threads": 1,
///                "env": {"AMALGAM_LOG": "info"}},
///         "G3": {"endpoint": "tcp://eth0:0", "host": "node7"}}}
///
/// `endpoint` is a URI, or a list with one URI per replica. Likewise `host` is the name of a
/// machine reachable by ssh, or a list. With port 0 or an unnamed `shm://` each process gets an
/// address of its own, which the launcher passes to the others. `arguments` is a list of texts,
/// `preCmd` a text. FastFlow's configuration files are read as well: their groups are a list, each
/// with `name`, `endpoint` ("node7:8004") and `preCmd`; see docs/guide/fastflow.md.
struct flow_config {
    static constexpr std::size_t max_replicas = 1024;  ///< Per group.
    static constexpr unsigned max_threads = 1024;      ///< Per process.

    std::vector<group_config> groups;  ///< In file order; names are unique.
    /// The processes find one another by themselves, as those of FastFlow's programs do, and run no
    /// graph of flow. In JSON: "standAlone": true.
    bool stand_alone = false;

    /// The group of that name, or nullptr. Owned by this object.
    const group_config* find(std::string_view name) const noexcept;

    friend bool operator==(const flow_config&, const flow_config&) = default;
};

/// Parses a config. `origin` ("config.json") prefixes every error message.
///
/// Failure: `invalid`, with one sentence that names the key, what was expected, and an example:
///          config.json: groups.G2.endpoint is 7, expected a URI; example: "tcp://127.0.0.1:0"
result<flow_config> parse_flow_config(std::string_view json, std::string_view origin = "config");

/// Reads the file at `path`. Fails as parse_flow_config(), and with `not_found` if it cannot be
/// read, `invalid` if it is longer than 16 MiB.
result<flow_config> load_flow_config(const std::string& path);

/// The config as JSON on one line: parse_flow_config(to_json(c)) gives c back.
std::string to_json(const flow_config& config);

/// Label that prefixes output: "G2" for a group with one process, else "G2.1" for its second.
std::string process_label(const group_config& group, std::size_t replica);
/// The same, given the number of processes in the group.
std::string process_label(std::string_view group, std::size_t replica, std::size_t replicas);

/// Whether a process at `endpoint` can be found without being told its address: its port is fixed,
/// or its name given.
bool has_fixed_address(std::string_view endpoint);

}  // namespace amalgam
