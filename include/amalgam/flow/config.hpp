#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam {

/// One group of a run: its name, and where each of its processes listens.
struct group_config {
    std::string name;
    /// One URI per process (replica) of the group; never empty.
    std::vector<std::string> endpoints;
    /// Execution streams (OS threads) each process runs nodes on; 0 lets it choose.
    unsigned threads = 0;
    /// Set in the environment of the group's processes, in this order.
    std::vector<std::pair<std::string, std::string>> env;
    /// Where the launcher starts each of its processes over ssh, as ssh takes it ("node7",
    /// "me@node7"); an empty text, or an empty list, means here.
    std::vector<std::string> hosts{};

    /// Where that replica is started; empty means here.
    std::string host(std::size_t replica) const { return hosts.empty() ? "" : hosts[replica]; }
    std::size_t replicas() const noexcept { return endpoints.size(); }
    friend bool operator==(const group_config&, const group_config&) = default;
};

/// Which groups a graph is spread over, and where they listen. Written as JSON:
///
///     {"groups": {
///         "G1": {"endpoint": "tcp://127.0.0.1:0"},
///         "G2": {"endpoint": "tcp://127.0.0.1:0", "replicas": 2, "threads": 1,
///                "env": {"AMALGAM_LOG": "info"}},
///         "G3": {"endpoint": "tcp://eth0:0", "host": "node7"}}}
///
/// `endpoint` is a URI, or a list with one for each replica; so is `host` the name of a machine
/// that ssh reaches, or a list. Port 0 and an unnamed `shm://`
/// give each process an address of its own, which the launcher passes to the others.
struct flow_config {
    static constexpr std::size_t max_replicas = 1024;  ///< Of one group.
    static constexpr unsigned max_threads = 1024;      ///< Of one process.

    std::vector<group_config> groups;  ///< In the order of the file; names are unique.

    /// The group of that name, or nullptr. Borrowed from this object.
    const group_config* find(std::string_view name) const noexcept;

    friend bool operator==(const flow_config&, const flow_config&) = default;
};

/// Reads a config. `origin` ("config.json") starts every sentence.
///
/// Failure: `invalid`, with one sentence that names the place, what was expected, and an
///          example: config.json: groups.G2.endpoint is 7, expected a URI;
///          example: "tcp://127.0.0.1:0"
result<flow_config> parse_flow_config(std::string_view json, std::string_view origin = "config");

/// Reads the file at `path`; as parse_flow_config(), and `not_found` when it cannot be read,
/// `invalid` when it is longer than 16 MiB.
result<flow_config> load_flow_config(const std::string& path);

/// The config as JSON on one line: parse_flow_config(to_json(c)) gives c back.
std::string to_json(const flow_config& config);

/// "G2" of a group with one process, else "G2.1" for its second: what output is prefixed with.
std::string process_label(const group_config& group, std::size_t replica);
/// The same of a group with so many processes.
std::string process_label(std::string_view group, std::size_t replica, std::size_t replicas);

/// Whether others can find a process at `endpoint` without being told: its port is fixed, or
/// its name given.
bool has_fixed_address(std::string_view endpoint);

}  // namespace amalgam
