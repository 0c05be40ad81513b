#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "flow/channel/part.hpp"
#include "flow/channel/receiver.hpp"
#include "flow/channel/sender.hpp"

namespace amalgam::detail {

/// One process of a run: the group's number in the graph, and the replica.
struct seat {
    std::size_t group = 0;
    std::size_t replica = 0;
    friend auto operator<=>(const seat&, const seat&) = default;
};

/// Addresses of all processes: by the group's number in the graph, then by replica.
using address_book = std::vector<std::vector<std::string>>;

/// Groups with nodes in that loop of the graph, in order. If there are several, the first process
/// of the first one detects the end of the loop and tells all others.
std::vector<std::size_t> groups_of_loop(const graph_core& graph, std::size_t loop);

/// A process's communication with the others of its run, including loss detection.
///
/// Owner:   owns the channels; borrows the part, which outlives it, and the engine, which must be
///          stopped first: handlers in flight use this.
/// Threads: set up by one; join_all() and close() by one ULT; the rest by the engine's ULTs.
/// Failure: a process that is unreachable, lost or failed ends the part, with its name.
class exchange {
public:
    /// Derives the channels from the graph and the groups of `config`, attaches them to `nodes`,
    /// and serves the other processes' calls.
    exchange(graph_core& graph, const flow_config& config, seat here, engine& over, part& nodes,
             const run_options& options);
    exchange(const exchange&) = delete;
    exchange& operator=(const exchange&) = delete;

    /// Introduces this process to all its receivers, in whatever order they start. False: one did
    /// not answer in time; the part has failed.
    bool join_all(const address_book& addresses);
    /// Ends the part unless every sender has joined by `deadline`.
    void expect_senders(clock::time_point deadline);

    /// Liveness checks of the processes this one needs, until close(). A suspended process keeps
    /// its connections, so losing those is not enough.
    void feel_pulses();

    /// Detects the end of loops that span processes, if this process is responsible.
    void watch_loops(const address_book& addresses);

    /// The part has ended: tells the others, and waits for none.
    void close();

private:
    /// A process that this one sends to or receives from.
    struct companion {
        seat who;
        std::string label;
        bool sends_to_us = false;
        bool joined = false;
        bool watched = false;
        peer at;
        future<std::string> stay;
        future<std::uint64_t> pulse;  ///< Liveness check in flight.
        unsigned looks_in_vain = 0;   ///< Unanswered liveness checks.
        ult watcher;
        event gone;  ///< Set once `stay` has ended; `last_words` says how.
        failure last_words;
    };

    /// A loop with nodes in processes of several groups.
    struct shared_loop {
        std::uint32_t number = 0;
        std::vector<std::size_t> groups;
        ult watcher;
        bool asked = false;  ///< Its counts were requested since the last check.
        bool ever_asked = false;
        unsigned looks_in_vain = 0;  ///< Checks since the last request.
    };

    void derive_loops();
    const loop_count* loop_of_way_back(std::size_t edge);
    void watch(const shared_loop& loop, const std::vector<std::string>& all);
    void fail_to_watch(const shared_loop& loop, const std::string& address, const failure& why);
    bool is_watched(shared_loop& loop, clock::duration pause);
    void end_everywhere(const shared_loop& loop, const std::vector<std::string>& all);
    void derive_channels();
    std::size_t replicas_of(std::size_t group) const;
    void serve();
    void take_batch(std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                    channel_in::batch what);
    void take_credit(std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                     std::uint64_t items);
    void take_join(const std::string& graph, seat who);
    std::string serve_stay();
    std::string take_end(std::uint32_t edge, std::uint32_t replica, std::uint64_t batches,
                         std::uint64_t items);
    void join(companion& one, const std::string& address, clock::time_point deadline);
    void fail_to_join(const companion& one, const std::string& address, const failure& why);
    void watch(companion& one);
    const companion& caller(seat who, bool sends_to_us) const;
    void blame(const companion& one, const error& wrong);
    void lose(const companion& one, const failure& why);
    void lose_after_last_words(companion& one, const failure& why);
    bool exchanges_with(const companion& one) const;
    bool is_needed(const companion& one) const;
    companion& find(seat who, bool sends_to_us) const;
    std::string label(seat who) const;

    graph_core& graph_;
    const flow_config& config_;
    const seat here_;
    engine& over_;
    part& part_;
    const run_options options_;

    struct out_edge {
        std::size_t to_group;
        /// One for all processes of the group; or one per process, if the graph determines the
        /// receiver of each item.
        std::vector<std::unique_ptr<sender>> channels;

        sender& to(std::size_t replica) const {
            return *channels[channels.size() == 1 ? 0 : replica];
        }
        /// The replica's number within that channel.
        std::size_t number(std::size_t replica) const { return channels.size() == 1 ? replica : 0; }
    };
    void add_out(std::size_t edge, std::size_t to_group);
    struct in_edge {
        std::size_t from_group;
        std::unique_ptr<receiver> channel;
        const loop_count* back_in = nullptr;  ///< The loop it feeds back into.
    };
    std::map<std::size_t, out_edge> out_;  // By edge.
    std::map<std::size_t, in_edge> in_;
    std::vector<shared_loop> loops_;
    std::vector<std::unique_ptr<companion>> companions_;
    mutable mutex lock_;  // Protects the companions' states.
    condition_variable joined_;
    event over_here_;
    bool closed_ = false;
};

}  // namespace amalgam::detail
