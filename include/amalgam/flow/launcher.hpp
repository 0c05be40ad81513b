#pragma once

#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/flow/config.hpp>

namespace amalgam {

/// What `amalgam run` starts, and what it shows.
struct launch_options {
    flow_config config;  ///< The groups to start.
    /// The program and its arguments. A name without a slash is looked up in PATH.
    std::vector<std::string> command;
    /// Groups whose output is shown; empty: all.
    std::vector<std::string> view;
    /// Interval of progress lines, which name the bottleneck; a table (run_report::text()) follows
    /// at the end. 0: neither.
    std::chrono::milliseconds stats{0};
    /// File for run_report::json() of the whole run; empty: none.
    std::string report_file{};
    /// Where the numbers of all processes are told by HTTP, for Prometheus: an address as
    /// metrics_server takes it, such as "127.0.0.1:9464"; port 0 chooses one. Each has the label
    /// {"process", "G2.1"}. Empty: none.
    std::string metrics{};
    /// Where to serve the live page of the run, an address as live_page takes it: "127.0.0.1:0".
    /// Port 0 chooses one; the address, with the token that the page needs, is printed. Empty: no
    /// page.
    std::string web{};
    /// Time for the other processes to end after SIGTERM before they are killed.
    std::chrono::milliseconds grace{3000};
    /// After this long the run is ended as failed; 0: never.
    std::chrono::milliseconds limit{0};

    /// Folder for checkpoints of the run, made if it is not there: each process saves its nodes
    /// there, whenever one is asked for. Not for graphs with loops or ordered farms, and only for
    /// nodes that say what to save (node.hpp); others are refused before they start. Removed when
    /// the run ends well. Empty: none are taken.
    std::string checkpoints{};
    /// Takes a checkpoint by itself, so long after the last one; 0: only when asked for, as by the
    /// button of the live page.
    std::chrono::milliseconds checkpoint_every{0};
    /// How often the run may be started again when a process is lost, that is ended by a signal, or
    /// silent: all of them are ended, and go on from the last complete checkpoint. A process that
    /// fails, as by an exception of a node, ends the run nevertheless.
    unsigned restarts = 0;
    /// Without a complete checkpoint, too: from the start.
    bool restart_from_start = false;
    /// Goes on from the last complete checkpoint of an earlier run in that folder.
    bool resume = false;

    /// Where other hosts can reach an endpoint of tcp, ofi or ucx, the run makes keys of its own:
    /// its processes encrypt, as by tcp+tls, and nobody else gets in. True: they do neither, and
    /// let in whoever comes.
    bool insecure = false;

    /// Command that reaches a group's `host`: a program and its arguments; the host and one command
    /// are appended. It must not prompt for a password.
    std::vector<std::string> ssh{"ssh"};
    /// Path of the `amalgam` tool on the hosts. A name without a slash is looked up in PATH.
    std::string remote_amalgam = "amalgam";
    /// A host silent for this long is lost; it ends its own processes.
    std::chrono::milliseconds host_silence{30000};
};

/// Starts every process of every group, here or on its host over ssh, with this process's
/// environment and working directory. Shows their output line by line, prefixed with "[G2] ", and
/// waits for all of them. When one fails, or a signal ends the run, stops the others.
///
/// Returns the exit code: 0 if every process exited with 0; the first failure's exit code, or 128 +
/// its signal; 1 if no process ran its part of a graph, or one did not within
/// run_options::join_limit; 2 if graph and config do not match; 128 + the signal that ended the
/// run.
/// Threads: must be called from a single-threaded process: it forks. Takes over SIGINT, SIGTERM,
///          SIGHUP and SIGCHLD, so call it once, from a main().
/// Failure: throws error{invalid}, {not_found}, {denied} or {in_use}, before anything is started,
///          for an unknown group in `view`, a program that cannot be run, such an address in
///          `metrics`, or what is in the folder of `checkpoints`. Exits with 2, starting nothing,
///          if `web` cannot be listened at.
/// Cost:    two processes of its own. Each cleans up after the other: everything the groups started
///          ends, even if one of the two is killed.
int launch(const launch_options& options);

/// The remote end of launch() on a host, started by ssh as `amalgam run --agent`. Runs one process
/// as directed by the launcher over stdin and stdout. Ends it and everything it started when the
/// launcher, or the connection to it, is gone.
///
/// Returns the exit code. Threads and cost: as launch().
int serve_launcher();

}  // namespace amalgam
