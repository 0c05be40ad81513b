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
    std::string name;              ///< As the graph has it.
    std::string process;           ///< "G2", "G2.1"; empty if the whole graph runs in one process.
    std::string inside;            ///< The node it is combined with, which accounts for its time.
    std::uint64_t taken = 0;       ///< Items.
    std::uint64_t given = 0;       ///< Items; a broadcast item counts once per worker.
    double seconds = 0;            ///< From its start to its last work, or until now.
    double waited_for_input = 0;   ///< Part of `seconds`.
    double waited_for_output = 0;  ///< Part of `seconds`: for queue space or a free worker.
    bool ended = false;            ///< It has done its last work.

    /// Parts of busy_seconds(), estimated from samples; 0 if no reports were asked for.
    double waited_for_core = 0;  ///< Could have run, but others had its thread, or its core.
    double waited_for_lock = 0;  ///< A mutex of ours, or a lock or condition variable of threads.
    double waited_outside = 0;   ///< A file, a socket, a sleep, a call of the node's own.

    /// Fraction of time, 0 to 1, in which it waited for neither: it computed, or waited for what is
    /// not in the graph.
    double busy() const noexcept;
    /// The same in seconds.
    double busy_seconds() const noexcept;

    friend bool operator==(const node_report&, const node_report&) = default;
};

/// Traffic between two nodes, as known to the sender's process.
struct channel_report {
    std::string from,                ///< The sending node.
        to;                          ///< The receiving one.
    std::string process;             ///< Of `from`.
    std::uint64_t items = 0;         ///< Sent by `from`.
    std::uint64_t bytes = 0;         ///< Size of these items; between processes only.
    std::uint64_t waiting = 0;       ///< Items not yet taken by `to`, as last reported.
    std::uint64_t most_waiting = 0;  ///< Approximate maximum of `waiting`.
    /// Sent and not consumed, between processes only. When this reaches run_options::window_bytes
    /// for each receiver, the sender waits for credit.
    std::uint64_t unconsumed_bytes = 0;
    bool between_groups = false;  ///< Items leave the sender's process.

    friend bool operator==(const channel_report&, const channel_report&) = default;
};

/// What a process of a run uses.
struct process_report {
    std::string name;                  ///< As node_report::process.
    double seconds = 0;                ///< Since its nodes were started.
    double processor_seconds = 0;      ///< Of all its threads, since then.
    std::uint64_t resident_bytes = 0;  ///< Memory, now.
    std::uint64_t cores = 0;           ///< That it may use.

    friend bool operator==(const process_report&, const process_report&) = default;
};

/// What holds a run up, why, and what may help.
struct bottleneck_report {
    /// What keeps the run from being faster.
    enum class cause {
        nothing,  ///< Nothing ran.
        work,     ///< The node computes.
        core,     ///< The node waits for a core.
        lock,     ///< The node waits for a lock.
        outside,  ///< The node waits for something outside the graph.
        network,  ///< Both ends of a channel wait, and much is under way.
        credit    ///< Both ends of a channel wait, and little may be under way.
    };

    cause why = cause::nothing;  ///< What holds the run up.
    std::string node,            ///< Its name; of a channel: the sender.
        process;                 ///< The process of `node`.
    std::string to_node,         ///< The receiver, if it is a channel.
        to_process;              ///< The process of `to_node`.
    double share = 0;            ///< Of the time, 0 to 1, for that reason.
    std::string sentence;        ///< "filter" in G2, busy 98 % of the time
    std::string advice;          ///< Give "filter" more workers …
};

/// For example "network".
const char* name(bottleneck_report::cause why) noexcept;

/// Where the items and the time of a run went, over the nodes of one or several processes.
///
///     std::cerr << am::run(graph).text();
struct run_report {
    std::vector<node_report> nodes;         ///< Of all processes.
    std::vector<channel_report> channels;   ///< Of all processes.
    std::vector<process_report> processes;  ///< What each of them uses.

    /// Merges in another process's report.
    void add(const run_report& other);

    /// Duration of the node that was active longest, working or waiting.
    double seconds() const noexcept;
    /// What happened after `before`, an earlier report of the same run. What waits in channels, and
    /// memory, is as now.
    run_report since(const run_report& before) const;

    /// The node that was busy longest (on a tie the last one, which the others would wait for), or
    /// a channel if one end waits for room and the other for items. While nodes run, those that
    /// have ended are not considered. Percentages are of seconds().
    bottleneck_report explain() const;
    /// explain(), as a sentence. Empty if nothing ran.
    std::string bottleneck() const;
    /// A table for people that ends with the bottleneck, and what may help. Percentages are of
    /// seconds().
    std::string text() const;
    /// One line: the number of items the sinks took, and the bottleneck since `before`, an earlier
    /// report.
    std::string line(const run_report& before = {}) const;
    /// {"nodes": [{"name", "process", "taken", "given", "seconds", "waited_for_input" …}],
    /// "channels": [{"from", "to", "items", "bytes" …}], "processes": [{"name",
    /// "processor_seconds" …}], "bottleneck", "cause", "advice"}
    std::string json() const;

    friend bool operator==(const run_report&, const run_report&) = default;
};

/// The same as numbers with names: "amalgam_flow_node_taken_total" {"node"},
/// "amalgam_flow_channel_items_total" {"from", "to"} ...
metric_snapshot to_metrics(const run_report& report);

/// Parses the output of run_report::json(). Failure: `invalid`.
result<run_report> parse_run_report(std::string_view json);

}  // namespace amalgam
