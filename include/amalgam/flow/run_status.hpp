#pragma once

#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/ult_report.hpp>

namespace amalgam {

/// One process of a run, as it said last.
struct process_status {
    std::string label;     ///< "G2.1"
    std::string where;     ///< "pid 4711", "on node7"
    std::string address;   ///< Of its endpoint; empty until it has one.
    bool running = false;  ///< It has not ended.
    /// It answered this time. Otherwise `report` and `metrics` are what it said earlier, or empty:
    /// it has ended, has not begun its part of the graph, or is too busy.
    bool answered = false;
    run_report report;        ///< Of its nodes, so far.
    metric_snapshot metrics;  ///< As read_metrics() of its engine: with process_cpu_seconds_total.
};

/// A run of `amalgam run`, seen from outside.
struct run_status {
    int launcher = 0;     ///< Process id of `amalgam run`, by which the run is named.
    std::string command;  ///< "./wordcount text.txt"
    double seconds = 0;   ///< Since its start.
    std::string graph;    ///< graph::json(); empty until a process has told it.
    std::vector<process_status> processes;  ///< All that were started.

    /// Of all processes.
    run_report report() const;
    /// Of all processes, with those of their nodes and channels, as to_metrics() has them. Each has
    /// the label {"process", "G2.1"}.
    metric_snapshot metrics() const;
};

/// The runs of this user on this host: process ids of their launchers.
std::vector<int> list_runs();

/// Asks all processes of a run how they are, now. `launcher`: as list_runs() has it; 0: the only
/// run there is.
///
/// Failure: throws error{not_found} if there is no such run, error{invalid} for 0 if there are
///          several, error{denied} if it is another user's, error{timed_out} if the launcher does
///          not answer.
/// Cost:    processes that do not answer within a second are shown as they were. A run that nobody
///          looks at pays nothing.
run_status read_run(int launcher = 0, std::chrono::milliseconds timeout = std::chrono::seconds(5));

/// Asks one process of a run for its ULTs: what each waits for, and its stack. `process`: as
/// process_status::label.
///
/// Failure: as read_run(); also error{not_found} and error{closed}, if there is no such process or
/// it
///          has ended, and error{timed_out}, if it does not answer.
ult_report read_run_ults(const std::string& process, int launcher = 0,
                         std::chrono::milliseconds timeout = std::chrono::seconds(5));

}  // namespace amalgam
