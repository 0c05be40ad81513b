#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <amalgam/flow/config.hpp>

namespace amalgam {

/// What `amalgam run` starts, and what it shows of it.
struct launch_options {
    flow_config config;
    /// The program and its arguments; a name without a slash is looked for in PATH.
    std::vector<std::string> command;
    /// Groups whose output is shown; empty shows all.
    std::vector<std::string> view;
    /// How often a line says how far the run is and what holds it up; at the end a table does
    /// (run_report::text()). 0: neither.
    std::chrono::milliseconds stats{0};
    /// Where run_report::json() of the whole run is written at its end; empty: nowhere.
    std::string report_file{};
    /// How long the others may take to end after SIGTERM, before they are killed.
    std::chrono::milliseconds grace{3000};

    /// How a group's `host` is reached: a program and its arguments, to which the host and one
    /// command are added. It must not ask for a password.
    std::vector<std::string> ssh{"ssh"};
    /// Where the tool `amalgam` is on the hosts; a name without a slash is looked for in PATH.
    std::string remote_amalgam = "amalgam";
    /// A host that is not heard of for so long is lost; it ends by itself what it runs.
    std::chrono::milliseconds host_silence{30000};
};

/// Starts every process of every group, here or on its host over ssh, with this process's
/// environment and working folder; shows their output line by line behind "[G2] ", and waits for
/// all of them. When one fails, or a signal asks to end, stops
/// the others.
///
/// Returns what to exit with: 0 when every process ended with 0; the first failure's exit
/// code, or 128 + its signal; 1 when none of them ran its part of a graph, or one did not within
/// run_options::join_limit; 2 when the graph and the config do not fit; 128 + the signal that ended
/// the run.
/// Threads: the caller's must be the only one: it forks. Takes over SIGINT, SIGTERM, SIGHUP
///          and SIGCHLD, so call it once, from a main().
/// Failure: throws error{invalid} or error{not_found}, before anything is started, for an
///          unknown group in `view` or a program that cannot be run.
/// Cost:    two processes of its own. Each keeps the other's end from leaving anything behind:
///          whatever the groups started ends too, also when one of the two is killed.
int launch(const launch_options& options);

/// The other end of launch() on a host, which ssh starts as `amalgam run --agent`: runs one
/// process as the launcher at the standard input and output asks, and ends it with all that it
/// started when the launcher is gone, or the way to it.
///
/// Returns what to exit with. Threads and cost: as launch().
int serve_launcher();

}  // namespace amalgam
