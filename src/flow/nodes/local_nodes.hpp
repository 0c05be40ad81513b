#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/checkpoints/snapshot.hpp"
#include "flow/nodes/samples.hpp"
#include "flow/nodes/streams.hpp"

namespace amalgam::detail {

/// Why a run ends early.
struct run_failure {
    failure what;
    bool because_of_other = false;  ///< Only because another process failed or is gone.
};

/// The nodes of a graph that run in this process, and the queues between them.
///
/// Owner:   borrows the graph and the streams, which outlive it.
/// Threads: set up and waited for by one; fail() from any.
class local_nodes {
public:
    /// `nodes` are indices into the graph; edges between two of them become queues.
    local_nodes(graph_core& graph, std::vector<std::size_t> nodes, place where,
                const node_streams& streams, const run_options& options);
    ~local_nodes();
    local_nodes(const local_nodes&) = delete;
    local_nodes& operator=(const local_nodes&) = delete;

    /// Connects an edge between groups to its channel. Before start().
    void attach(std::size_t edge, channel_in& from);
    /// The same for output; call again for each of several channels the sender chooses from.
    void attach(std::size_t edge, channel_out& to);

    /// Counts of that loop in this process.
    loop_count& loop(std::size_t number) noexcept { return *loops_[number]; }

    /// The nodes give their records to `into`, and go on from those in `restored`, if there are
    /// some. Before start().
    /// Precondition: graph_core::check_checkpoints().
    /// Failure: throws error{mismatch} unless `restored` is of these nodes.
    void take_part_in_checkpoints(snapshot& into, std::optional<std::vector<node_record>> restored);
    /// Number of nodes with a ULT of their own, which `into` counts.
    std::size_t running_count() const noexcept { return left_.load(); }
    /// Has the sources mark their streams for that checkpoint. Any thread.
    void begin_checkpoint(std::uint64_t number);

    /// Starts every node as a ULT, except those fused into another.
    void start();
    /// From here on the loops' counts are complete.
    bool has_started() const noexcept { return started_.load(); }
    /// Set when every node has ended, for whatever reason.
    event& ended() noexcept { return ended_; }

    /// Ends the run early. The first reason counts: `tell` is called with it before it is visible
    /// elsewhere, then `stop_channels`, which ends nodes waiting there. Does not wait.
    void fail(run_failure why) noexcept;
    void report_failure_to(std::function<void(const run_failure&)> tell) {
        tell_ = std::move(tell);
    }
    void on_failure(std::function<void()> stop_channels) {
        stop_channels_ = std::move(stop_channels);
    }
    /// The reason, if the run was ended early.
    std::optional<run_failure> failed() const;

    /// Progress of the nodes so far. After start(); any thread.
    run_report report() const;
    /// Samples what the nodes do, for report(): whether they compute, or wait for what is not in
    /// the graph. One thread, some times a second. Nothing before start() has returned.
    void sample();

private:
    struct running_node;
    /// One node's part in checkpoints.
    struct own_marks final : node_marks {
        own_marks(local_nodes& all, running_node& one) : nodes(all), node(one) {}
        void save_and_pass_on(std::uint64_t number) override { nodes.save(node, number); }
        local_nodes& nodes;
        running_node& node;
    };
    struct running_node {
        std::size_t index = 0;
        execution_stream* stream = nullptr;
        node_ends ends;
        std::map<std::size_t, inlet> in;                ///< By edge.
        std::map<std::size_t, std::vector<taker>> out;  ///< By edge.
        std::vector<running_node*> fused;               ///< Nodes fused into this one.
        bool is_fused = false;
        ult task;
        std::atomic<std::uint64_t> started{0}, ended{0};  ///< By cycles(); end of its latest work.
        wait_clock waits_after_end;
        std::atomic<pid_t> thread{0};  ///< Its stream's.
        busy_samples samples;
        std::size_t number = 0;  ///< Among those that run, in a snapshot.
        std::unique_ptr<own_marks> marks;
    };

    running_node& running(std::size_t node) const;
    running_node& host_of(std::size_t node) const;
    bool is_here(std::size_t node) const;
    void choose_streams(const node_streams& streams);
    void join_here(std::size_t edge, const run_options& options);
    branch branch_of(running_node& node, const way_in& to) const;
    port_ends ends_of(running_node& node, const graph_port& port);
    void wire(running_node& node);
    void run_one(running_node& node) noexcept;
    void end_outputs(running_node& node, bool wait);
    void mark_outputs(running_node& node, std::uint64_t number);
    void save(running_node& node, std::uint64_t number);
    void save_ended(running_node& node);
    static void take_ends(running_node& node);
    const node_record* record_of(const running_node& node) const;
    void add_records(const running_node& node, bool ended, std::vector<node_record>& to) const;

    graph_core& graph_;
    place where_;
    std::vector<std::unique_ptr<running_node>> nodes_;
    std::vector<std::unique_ptr<ring_core>> rings_;
    std::vector<std::unique_ptr<loop_count>> loops_;  ///< By their numbers in the graph.
    std::function<void(const run_failure&)> tell_;
    std::function<void()> stop_channels_;
    std::atomic<bool> started_{false};
    std::chrono::steady_clock::time_point start_time_;
    std::uint64_t start_ticks_ = 0;
    double start_processor_seconds_ = 0;
    std::atomic<bool> spawned_{false};
    // Of sample():
    thread_times threads_;
    std::chrono::steady_clock::time_point sampled_at_{};
    std::atomic<std::size_t> left_;
    event ended_;

    snapshot* saved_ = nullptr;  // nullptr: there are no checkpoints.
    std::optional<std::vector<node_record>> restored_;

    mutable std::mutex failure_lock_;
    std::optional<run_failure> failure_;
};

}  // namespace amalgam::detail
