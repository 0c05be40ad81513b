#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam {

/// What one node did in a run, up to now or to its end.
struct node_report {
    std::string name;
    std::string process;           ///< "G2", "G2.1"; empty when the whole graph runs in one.
    std::string inside;            ///< The node it is combined with, whose times are its own.
    std::uint64_t taken = 0;       ///< Items.
    std::uint64_t given = 0;       ///< Items; what is broadcast counts for each worker.
    double seconds = 0;            ///< From its start to its last work, or until now.
    double waited_for_input = 0;   ///< Of these seconds.
    double waited_for_output = 0;  ///< Of these seconds: for room, or a worker with little to do.

    /// The part of the time in which it waited for neither, 0 to 1: it computed, or did what makes
    /// it wait by itself.
    double busy() const noexcept;
    /// The same in seconds.
    double busy_seconds() const noexcept;

    friend bool operator==(const node_report&, const node_report&) = default;
};

/// What passed between two nodes, as the sending one's process knows it.
struct channel_report {
    std::string from, to;
    std::string process;             ///< Of `from`.
    std::uint64_t items = 0;         ///< That left `from`.
    std::uint64_t bytes = 0;         ///< Of them, between processes.
    std::uint64_t waiting = 0;       ///< Items that `to` has not taken yet, as last heard.
    std::uint64_t most_waiting = 0;  ///< The most at once, about.
    bool between_groups = false;

    friend bool operator==(const channel_report&, const channel_report&) = default;
};

/// Where the items and the time of a run went: of the nodes in one process, or in several.
///
///     std::cerr << am::run(graph).text();
struct run_report {
    std::vector<node_report> nodes;
    std::vector<channel_report> channels;

    /// Adds what another process says.
    void add(const run_report& other);

    /// The seconds of the node that worked, or waited, for the longest time.
    double seconds() const noexcept;
    /// What the others wait for, in a sentence: the node that was busy for the longest time (among
    /// equals the last one, which the others would wait for), or a way between two groups when one
    /// end waits for room and the other for items. Shares are of seconds(). Empty when nothing ran.
    std::string bottleneck() const;
    /// A table for people, that ends with the bottleneck. Shares are of seconds().
    std::string text() const;
    /// One line: how many items the sinks took, and the bottleneck.
    std::string line() const;
    /// {"nodes": [{"name", "process", "taken", "given", "seconds", "waited_for_input" …}],
    /// "channels": [{"from", "to", "items", "bytes" …}], "bottleneck"}
    std::string json() const;

    friend bool operator==(const run_report&, const run_report&) = default;
};

/// Reads what run_report::json() wrote. Failure: `invalid`.
result<run_report> parse_run_report(std::string_view json);

}  // namespace amalgam
