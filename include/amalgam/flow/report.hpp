#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

/// Statistics of one node in a run, so far or at its end.
struct node_report {
    std::string name;
    std::string process;           ///< "G2", "G2.1"; empty if the whole graph runs in one process.
    std::string inside;            ///< The node it is combined with, which accounts for its time.
    std::uint64_t taken = 0;       ///< Items.
    std::uint64_t given = 0;       ///< Items; a broadcast item counts once per worker.
    double seconds = 0;            ///< From its start to its last work, or until now.
    double waited_for_input = 0;   ///< Part of `seconds`.
    double waited_for_output = 0;  ///< Part of `seconds`: for queue space or a free worker.

    /// Fraction of time, 0 to 1, in which it waited for neither: it computed, or blocked outside
    /// the graph.
    double busy() const noexcept;
    /// The same in seconds.
    double busy_seconds() const noexcept;

    friend bool operator==(const node_report&, const node_report&) = default;
};

/// Traffic between two nodes, as known to the sender's process.
struct channel_report {
    std::string from, to;
    std::string process;             ///< Of `from`.
    std::uint64_t items = 0;         ///< Sent by `from`.
    std::uint64_t bytes = 0;         ///< Size of these items; between processes only.
    std::uint64_t waiting = 0;       ///< Items not yet taken by `to`, as last reported.
    std::uint64_t most_waiting = 0;  ///< Approximate maximum of `waiting`.
    /// Sent and not consumed, between processes only. When this reaches run_options::window_bytes
    /// for each receiver, the sender waits for credit.
    std::uint64_t unconsumed_bytes = 0;
    bool between_groups = false;

    friend bool operator==(const channel_report&, const channel_report&) = default;
};

/// Where the items and the time of a run went, over the nodes of one or several processes.
///
///     std::cerr << am::run(graph).text();
struct run_report {
    std::vector<node_report> nodes;
    std::vector<channel_report> channels;

    /// Merges in another process's report.
    void add(const run_report& other);

    /// Duration of the node that was active longest, working or waiting.
    double seconds() const noexcept;
    /// The bottleneck, in one sentence: the node that was busy longest (on a tie the last one,
    /// which the others would wait for), or a path between two groups if one end waits for room and
    /// the other for items. Percentages are of seconds(). Empty if nothing ran.
    std::string bottleneck() const;
    /// A table for people that ends with the bottleneck. Percentages are of seconds().
    std::string text() const;
    /// One line: the number of items the sinks took, and the bottleneck.
    std::string line() const;
    /// {"nodes": [{"name", "process", "taken", "given", "seconds", "waited_for_input" …}],
    /// "channels": [{"from", "to", "items", "bytes" …}], "bottleneck"}
    std::string json() const;

    friend bool operator==(const run_report&, const run_report&) = default;
};

/// The same as numbers with names: "amalgam_flow_node_taken_total" {"node"},
/// "amalgam_flow_channel_items_total" {"from", "to"} ...
metric_snapshot to_metrics(const run_report& report);

/// Parses the output of run_report::json(). Failure: `invalid`.
result<run_report> parse_run_report(std::string_view json);

}  // namespace amalgam
